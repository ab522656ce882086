my %h; for my $i (1..30000) { my $k = "k".($i*7919 % 1009); $h{$k} .= chr(65+$i%26); $h{$k} =~ s/A(.)/$1/g; } print join(",", map { "$_=$h{$_}" } sort keys %h);
