# Strings, lists, dictionaries and procedures in Tcl.
proc collatz {n} {
  set steps 0
  while {$n != 1} { set n [expr {$n % 2 ? 3 * $n + 1 : $n / 2}]; incr steps }
  return $steps
}
set sum 0
for {set i 1} {$i < 6000} {incr i} { incr sum [collatz $i]; dict incr lengths [string length $i$sum] }
puts "$sum [dict size $lengths] [lsort -integer -decreasing [lrange [dict values $lengths] 0 3]]"
puts [catch {error boom} message]$message
