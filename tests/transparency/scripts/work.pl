# Hashes, regular expressions, sorting, closures, forks, signals.
use strict;
use warnings;
my ($path, $scale) = @ARGV;
my %count;
for (1 .. ($scale // 1)) {
  open my $in, '<:raw', $path or die;
  while (<$in>) {
    $count{lc $1}++ while /([A-Za-z_]{3,})/g;
    tr/a-z/n-za-m/;
    $count{length}++ if s/\s+/ /g > 3;
  }
}
print "$_ $count{$_}\n" for (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 9];
my @sorted = sort { $a->[0] <=> $b->[0] } map { [($_ * 7919) % 10007, $_] } 1 .. 50000;
print join(',', map { $_->[1] } @sorted[0 .. 5]), "\n";
my $ticks = 0;
local $SIG{USR1} = sub { $ticks++ };
kill USR1 => $$ for 1 .. 500;
print "ticks $ticks\n";
my $sum = 0;
for my $i (1 .. 30) {
  my $pid = fork // die;
  exit $i unless $pid;
  waitpid $pid, 0;
  $sum += $? >> 8;
}
print "sum $sum\n";
print eval { die { code => 42 } } // "caught $@->{code}\n";
