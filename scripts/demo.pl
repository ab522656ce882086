# The program that `make demo` records: sieve, hashes, strings, sorting, calls. About two seconds.
use strict;
use warnings;

sub sieve {
  my ($limit) = @_;
  my @composite;
  my $count = 0;
  for my $i (2 .. $limit) {
    next if $composite[$i];
    $count++;
    for (my $k = $i * $i; $k <= $limit; $k += $i) { $composite[$k] = 1 }
  }
  return $count;
}

sub collatz {
  my ($n) = @_;
  my $steps = 0;
  while ($n != 1) { $n = $n % 2 ? 3 * $n + 1 : $n / 2; $steps++ }
  return $steps;
}

my %lengths;
my $text = '';
for my $n (1 .. 30000) {
  my $steps = collatz($n);
  $lengths{"steps-$steps"} += $n;
  $text .= chr(97 + $steps % 26);
}
my @order = sort { $lengths{$a} <=> $lengths{$b} || $a cmp $b } keys %lengths;
printf "%d primes, %d lengths, most weight at %s, %d letters\n",
  sieve(1_000_000), scalar @order, $order[-1], length $text;
