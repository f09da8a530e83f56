# One rank that writes SECONDS times, once in a second, COUNT numbered lines of 2 KB: numbered-lines.sh SECONDS COUNT
printf -v pad '%2000s' ''
pad=${pad// /.}
line=0
for ((second = 0; second < $1; second++)); do
  block=''
  for ((i = 0; i < $2; i++)); do
    block+="line $((line++)) $pad"$'\n'
  done
  printf '%s' "$block"
  sleep 1
done
