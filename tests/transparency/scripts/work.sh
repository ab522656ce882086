# A shell at work: loops, arithmetic, strings, arrays, functions, subshells, pipelines, here documents, traps.
shopt -s nullglob
declare -A seen
sum=0
for ((i = 0; i < 40000; i++)); do
  ((sum = (sum * 31 + i) % 1000003))
  case $((i % 4)) in
    0) word=a${sum} ;;
    1) word=${word/a/b} ;;
    2) word=${word:1}${word:0:1} ;;
    *) seen[${word:0:2}]=$((${seen[${word:0:2}]:-0} + 1)) ;;
  esac
done
echo "$sum" "${#seen[@]}"
fib() { if (($1 < 2)); then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
fib 8
count=0
trap 'count=$((count + 1))' USR1
for i in {1..100}; do kill -USR1 $$; done
echo "signals $count"
seq 2000 | while read -r line; do echo $((line * line)); done | sort -n | tail -n 3
for i in {1..60}; do (exit $((i % 7))) || echo -n "$? "; done
echo
sleep 30 & pid=$!
kill -TERM $pid
wait $pid
echo "waited $?"
cat <<END | tr a-z A-Z
here $(echo nested $(echo deeper))
END
{ (kill -SEGV $BASHPID); echo "child $?"; } 2>/dev/null
exec 5>&1
ls -1 /proc/self/fd | tr '\n' ' '
exit 7
