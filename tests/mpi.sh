#!/usr/bin/env bash
# Layers on the ranks of a job: tests/mpi.sh COMMAND. Needs mpirun.
set -uo pipefail
command=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
check() {  # check WHAT CONDITION...: says what fails
  local what=$1
  shift
  "$@" || { echo "FAILED: $what"; failed=1; }
}
job() { timeout 120 mpirun --oversubscribe --allow-run-as-root "$@"; }
digest() { grep '^digest ' "$1" | cut -d' ' -f2; }
step="layer --preset tiny --layer 1 --batch 2 --kv-len 20,3 --threads 1"

# The bits are those of the same shards in one process, and with experts alone those of the whole layer.
for split in "--tp 2" "--ep 2" "--tp 2 --ep 2" "--ep 4"; do
  ranks=$(awk '{n = 1; for (i = 2; i <= NF; i += 2) n *= $i; print n}' <<<"$split")
  "$command" $step $split >"$folder/one" || failed=1
  job -n "$ranks" "$command" $step $split -o "$folder/out.safetensors" >"$folder/many" 2>"$folder/err"
  status=$?
  check "$split ends with 0: $(cat "$folder/err")" [ $status -eq 0 ]
  check "$split has the bits of one process" [ -n "$(digest "$folder/one")" -a "$(digest "$folder/one")" = "$(digest "$folder/many")" ]
  check "$split writes its output" [ -s "$folder/out.safetensors" ]
  rm -f "$folder/out.safetensors"
done

# One error that names rank and cause, exit code 2, nothing written.
refused() {  # refused TEXT mpirun-arguments...
  local text=$1
  shift
  job "$@" >"$folder/many" 2>"$folder/err"
  status=$?
  check "$text: exit code 2, got $status" [ $status -eq 2 ]
  check "$text: said once, got $(grep dodona: "$folder/err")" [ "$(grep -c "^dodona: .*$text" "$folder/err")" -eq 1 ]
  check "$text: nothing written" [ ! -e "$folder/out.safetensors" ]
}
for seed in 1 2; do "$command" synth --preset tiny --layers 1 --seed $seed "$folder/weights$seed" >/dev/null 2>&1 || failed=1; done
with=(-o "$folder/out.safetensors" --weights)
refused "rank 1 of 2 has another set of weights than rank 0" -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights1" : -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights2"
refused "rank 1 of 2 fails: .*weights3" -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights1" : -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights3"
refused "rank 1 of 2 has another step than rank 0" -n 1 "$command" $step --tp 2 : -n 1 "$command" $step --tp 2 --seed 7
refused "rank 1 of 2 has another configuration than rank 0" -n 1 "$command" $step --tp 2 : -n 1 "$command" $step --tp 2 --linear bf16
refused "rank 0 of 3 fails: --tp times --ep is 2, but mpirun started 3 ranks" -n 3 "$command" $step --tp 2
refused "rank 0 of 8 fails: .*num_attention_heads is 4" -n 8 "$command" $step --tp 8

# A rank that is killed: found, named, and nobody is left behind.
job -n 2 "$command" $step --tp 2 --repeat 1000000 -o "$folder/out.safetensors" >"$folder/many" 2>"$folder/err" &
waiting=$!
victim=
for _ in $(seq 100); do  # the process that works is the one whose parent is the command too
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    parent=$(awk '/^PPid/ {print $2}' "$process/status" 2>/dev/null) || continue
    [ "$(readlink "$process/exe" 2>/dev/null)" = "$(readlink -f "$command")" ] || continue
    [ "$(readlink "/proc/$parent/exe" 2>/dev/null)" = "$(readlink -f "$command")" ] || continue
    { tr '\0' '\n' <"$process/environ"; } 2>/dev/null | grep -q '^OMPI_COMM_WORLD_RANK=1$' && victim=$pid
  done
  [ -n "$victim" ] && break
  sleep 0.1
done
check "a rank to kill is found" [ -n "$victim" ]
sleep 2
began=$(date +%s)
kill -9 "$victim"
wait "$waiting"
status=$?
check "a killed rank: exit code 2, got $status" [ $status -eq 2 ]
check "a killed rank is found within ten seconds" [ $(($(date +%s) - began)) -le 10 ]
check "a killed rank is named, got $(cat "$folder/err")" [ "$(grep -c '^dodona: rank 1 of 2 was killed by signal 9 (Killed)' "$folder/err")" -eq 1 ]
check "a killed rank: nothing written" [ ! -e "$folder/out.safetensors" ]
sleep 1
left=$(for process in /proc/[0-9]*; do { tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null | grep -F -- "-o $folder/out.safetensors"; done)
check "no process is left behind, got $left" [ -z "$left" ]
exit $failed
