define(`times', `ifelse(eval($1 > 0), 1, `$2`'times(decr($1), `$2')')')dnl
define(`sum', `ifelse($1, 0, 0, `eval($1 + sum(decr($1)))')')dnl
define(`loop', `ifelse($1, $2, , `define(`acc', eval((acc * 31 + $1) % 1000003))loop(incr($1), $2)')')dnl
times(20, `ab')
sum(300)
define(`acc', 1)loop(1, 20000)acc
translit(`hello', `a-z', `A-Z') patsubst(`one two', `\(\w+\) \(\w+\)', `\2 \1') len(times(200, `xyz'))
syscmd(`echo from the shell')esyscmd(`printf %s inner')
