#!/usr/bin/env bash
# Layers, texts and suites on the ranks of a job: tests/mpi.sh COMMAND GOLDEN. Needs mpirun.
set -uo pipefail
command=$1 golden=$2
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

# Ranks of other instruction sets and other numbers of threads.
"$command" $step --tp 2 --ep 2 >"$folder/one" || failed=1
other="${step/--threads 1/--threads 3} --tp 2 --ep 2"
job -n 1 env DODONA_ISA=generic "$command" $other : -n 1 "$command" $other : -n 2 env DODONA_ISA=generic "$command" $step --tp 2 --ep 2 >"$folder/many" 2>"$folder/err"
check "ranks of different CPUs: $(cat "$folder/err")" [ -n "$(digest "$folder/one")" -a "$(digest "$folder/one")" = "$(digest "$folder/many")" ]

# Rows as DeepEP sends them, whoever has the experts; with three tokens some of four ranks have none.
sent="layer --preset tiny-fp8 --layer 1 --batch 3 --kv-len 20,3,7 --threads 1 --experts deepep --expert-weights fp8"
"$command" $sent >"$folder/one" || failed=1
for ranks in 2 4; do
  job -n $ranks "$command" $sent --ep $ranks >"$folder/many" 2>"$folder/err"
  check "DeepEP between $ranks ranks: $(cat "$folder/err")" [ -n "$(digest "$folder/one")" -a "$(digest "$folder/one")" = "$(digest "$folder/many")" ]
done

# Sums of kernels that take whole mixtures; with two tokens some of eight ranks have no row.
for experts in "--preset tiny --experts trtllm" "--preset tiny --experts flashinfer_cutlass" "--preset tiny-fp8 --linear w4a8"; do
  for ranks in 2 8; do
    "$command" ${step/--preset tiny } $experts --ep $ranks >"$folder/one" || failed=1
    job -n $ranks "$command" ${step/--preset tiny } $experts --ep $ranks >"$folder/many" 2>"$folder/err"
    check "sums of $experts on $ranks ranks: $(cat "$folder/err")" [ -n "$(digest "$folder/one")" -a "$(digest "$folder/one")" = "$(digest "$folder/many")" ]
  done
done

# Texts: those of the same split in one process; stages, experts and requests of their own change no token.
text="generate --preset tiny --prompt-ids 1,2,3,4,5 --prompt-ids 7 --prompt-ids 9,8 --max-new 3 --temperature 1 --threads 1 --quiet"
"$command" $text >"$folder/texts" 2>"$folder/err" || failed=1
for split in "--pp 2" "--ep 2 --dp-attention 2" "--tp 2" "--tp 2 --use input_layernorm=trtllm_allreduce_fusion" "--tp 2 --pp 2" "--ep 2 --pp 2 --dp-attention 2"; do
  ranks=$(awk '{n = 1; for (i = 1; i < NF; i += 2) if ($i != "--dp-attention" && $i != "--use") n *= $(i + 1); print n}' <<<"$split")
  "$command" $text $split >"$folder/one" 2>"$folder/err" || { cat "$folder/err"; failed=1; }
  job -n "$ranks" "$command" $text $split >"$folder/many" 2>"$folder/err"
  status=$?
  check "generate $split ends with 0: $(cat "$folder/err")" [ $status -eq 0 ]
  check "generate $split has the tokens of one process" cmp -s "$folder/one" "$folder/many"
  case $split in *--tp*) ;; *) check "generate $split has the tokens of one rank" cmp -s "$folder/texts" "$folder/many" ;; esac
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
# Another build: the name of an op is another one in the command's file.
mkdir "$folder/other"
cp "$(dirname "$command")/libdodona_mpi.so" "$folder/other/"
LC_ALL=C sed 's/gelu_tanh_and_mul/gelu_tanh_and_muk/g' "$command" >"$folder/other/dodona"
chmod +x "$folder/other/dodona"
refused "rank 1 of 2 has another set of contracts than rank 0" -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights1" : -n 1 "$folder/other/dodona" $step --tp 2 "${with[@]}" "$folder/weights1"
# A file of the checkpoint is missing on one rank.
cp -r "$folder/weights1" "$folder/torn" && rm "$(ls "$folder"/torn/*.safetensors | tail -1)"
refused "rank 1 of 2 fails: .*torn" -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/weights1" : -n 1 "$command" $step --tp 2 "${with[@]}" "$folder/torn"
refused "rank 0 of 3 fails: --tp times --ep is 2, but mpirun started 3 ranks" -n 3 "$command" $step --tp 2
refused "rank 0 of 8 fails: .*num_attention_heads is 4" -n 8 "$command" $step --tp 8

refused "rank 0 of 3 fails: --pp 2 are 2 ranks, but mpirun started 3" -n 3 "$command" $text --pp 2
refused "rank 1 of 2 has another call than rank 0" -n 1 "$command" $text --pp 2 : -n 1 "$command" $text --pp 2 --seed 7
drafts="--speculative nextn --speculative-eagle-topk 2 --speculative-num-draft-tokens 5"
refused "rank 0 of 2: --speculative with --dp-attention: ranks whose drafts" -n 2 "$command" $text --ep 2 --dp-attention 2 --speculative nextn

# Drafts and trees; a state that another job of the same split goes on from.
"$command" $text $drafts >"$folder/texts" 2>"$folder/err" || failed=1
job -n 4 "$command" $text $drafts --ep 2 --pp 2 >"$folder/many" 2>"$folder/err"
check "drafts of 4 ranks: $(cat "$folder/err")" cmp -s "$folder/texts" "$folder/many"
mkdir "$folder/kept_state"
with_state=(--tp 2 --state "$folder/kept_state/s")
"$command" $text --tp 2 >"$folder/one" 2>"$folder/err" || failed=1
job -n 2 "$command" ${text/--max-new 3/--max-new 1} "${with_state[@]}" >/dev/null 2>"$folder/err"
job -n 2 "$command" $text "${with_state[@]}" --resume >"$folder/many" 2>"$folder/err"
check "a state is gone on from: $(cat "$folder/err")" cmp -s "$folder/one" "$folder/many"
check "a state has a part of each rank" [ "$(ls "$folder/kept_state" | sed 's/[.][0-9]*$//' | tr '\n' ' ')" = "s s.rank0of2 s.rank1of2 " ]
refused "rank 0 of 2 fails: --resume .* holds the state of --tp 2, expected --pp 2" -n 2 "$command" $text --pp 2 --state "$folder/kept_state/s" --resume
"$command" $text --state "$folder/kept_state/s" --resume >/dev/null 2>"$folder/err"
check "a state of ranks is none of one process: $(cat "$folder/err")" grep -q "holds the state of several ranks" "$folder/err"

# The process of a rank that works: its parent is the command too.
find_rank() {
  local process pid parent
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    parent=$(awk '/^PPid/ {print $2}' "$process/status" 2>/dev/null) || continue
    [ "$(readlink "$process/exe" 2>/dev/null)" = "$(readlink -f "$command")" ] || continue
    [ "$(readlink "/proc/$parent/exe" 2>/dev/null)" = "$(readlink -f "$command")" ] || continue
    { tr '\0' '\n' <"$process/environ"; } 2>/dev/null | grep -q '^OMPI_COMM_WORLD_RANK=1$' || continue
    { tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null | grep -qF -- "$folder" && echo "$pid"
  done
}
wait_for() {  # wait_for COMMAND...: until it says something; most of two minutes
  local said=
  for _ in $(seq 1000); do
    said=$("$@" | tail -1)
    [ -n "$said" ] && break
    sleep 0.1
  done
  echo "$said"
}
processes_left() {  # processes_left WORDS: those that have the words on their command line, ten seconds later at most
  local left=
  for _ in $(seq 100); do
    left=$(for process in /proc/[0-9]*; do { tr '\0' ' ' <"$process/cmdline"; } 2>/dev/null | grep -F -- "$1"; done)
    [ -z "$left" ] && break
    sleep 0.1
  done
  echo "$left"
}
# killed WHAT PID JOB WORDS: kills the rank, and looks at what becomes of the others.
killed() {
  local what=$1 victim=$2 waiting=$3 words=$4 status left
  check "$what: a rank to kill is found" [ -n "$victim" ]
  kill -9 "$victim"
  wait "$waiting"
  status=$?
  check "$what: exit code 2, got $status" [ $status -eq 2 ]
  check "$what: named, got $(cat "$folder/err")" [ "$(grep -c '^dodona: rank 1 of 2 was killed by signal 9 (Killed)' "$folder/err")" -eq 1 ]
  left=$(processes_left "$words")
  check "$what: no process is left behind, got $left" [ -z "$left" ]
}

job -n 2 "$command" $step --tp 2 --repeat 1000000 -o "$folder/out.safetensors" >"$folder/many" 2>"$folder/err" &
waiting=$!
victim=$(wait_for find_rank)
sleep 2
killed "a layer" "$victim" $waiting "-o $folder/out.safetensors"
check "a killed rank: nothing written" [ ! -e "$folder/out.safetensors" ]

# Suites: the report of one process, whoever has done which case.
same() {  # same WHAT ARGUMENTS...: on 1 and on 3 ranks
  local what=$1 one many
  shift
  "$command" "$@" >"$folder/one" 2>"$folder/err"
  one=$?
  job -n 3 "$command" "$@" >"$folder/many" 2>"$folder/err"
  many=$?
  check "$what: exit code $one, got $many: $(cat "$folder/err")" [ $one -eq $many ]
  check "$what: the report of one process" cmp -s "$folder/one" "$folder/many"
}
same "verify" verify --mode all "$golden/rmsnorm" "$golden/all_reduce" "$golden/moe_fused_gate"
same "verify --json" verify --json "$golden/rmsnorm" "$golden/bmm_fp8"
same "verify of nothing" verify "$golden/rmsnorm" --op bmm_fp8
same "alarms" alarms --op silu_and_mul --cases 20
same "score of a part" score --json --cases 1 --part 1/100
refused "rank 0 of 2 fails: .*nowhere" -n 2 "$command" verify "$folder/nowhere"
refused "rank 1 of 2 has another set of cases" -n 1 "$command" verify "$golden/rmsnorm" : -n 1 "$command" verify "$golden/all_reduce"

# A record: the same on any number of ranks, also when some are killed on the way and others take it up.
cat >"$folder/suite.json" <<'SUITE'
{"name": "s", "cases": ["rmsnorm T=1,2,3,4,5 H=64", {"line": "silu_and_mul T=2,3 D=32", "tensors": true}, "linear T=96 N=2048 K=2048"]}
SUITE
"$command" record "$folder/suite.json" -o "$folder/whole" >/dev/null 2>&1 || failed=1
job -n 3 "$command" record "$folder/suite.json" -o "$folder/three" >/dev/null 2>"$folder/err"
check "a record of 3 ranks is that of one: $(cat "$folder/err")" diff -r "$folder/whole" "$folder/three"
check "a record of 3 ranks is verified by 2" job -n 2 "$command" verify "$folder/three" >/dev/null 2>&1
sed 's/T=96/T=20000/' "$folder/suite.json" >"$folder/long.json"
job -n 2 "$command" record "$folder/long.json" -o "$folder/cut" >"$folder/many" 2>"$folder/err" &
waiting=$!
some_are_kept() { [ -e "$folder/cut/record.partial.jsonl" ] && [ "$(wc -l <"$folder/cut/record.partial.jsonl")" -gt 3 ] && find_rank; }
killed "a record" "$(wait_for some_are_kept)" $waiting "-o $folder/cut"
check "a killed record is no record" [ ! -e "$folder/cut/record.json" ]
# What is kept is a beginning of the shorter suite's cases too: it is taken up by as many ranks as there are now.
head=$(head -1 "$folder/cut/record.partial.jsonl")
grep -v T=20000 "$folder/cut/record.partial.jsonl" | tail -n +2 >"$folder/kept"
mkdir -p "$folder/again"
"$command" record "$folder/suite.json" -o "$folder/digest" >/dev/null 2>&1
lines=$(grep -o '"lines_sha256": *"[0-9a-f]*"' "$folder/digest/record.json" | grep -o '[0-9a-f]\{64\}')
{ sed "s/\"lines_sha256\": *\"[0-9a-f]*\"/\"lines_sha256\":\"$lines\"/" <<<"$head" && cat "$folder/kept"; } >"$folder/again/record.partial.jsonl"
cp -r "$folder/cut/tensors" "$folder/again/" 2>/dev/null
job -n 3 "$command" record "$folder/suite.json" -o "$folder/again" >"$folder/many" 2>"$folder/err"
check "a record is taken up on 3 ranks: $(cat "$folder/many" "$folder/err")" grep -q "taken over from an interrupted record" "$folder/many"
check "a record that was taken up is that of one process" diff -r "$folder/whole" "$folder/again"

# Gradings: the report of one process, but for times and what the kernel printed.
cat >"$folder/kernel.py" <<'KERNEL'
import os
import numpy as np


def right(input, **_):
    x, half = input.astype(np.float32), input.shape[-1] // 2
    with np.errstate(all="ignore"):
        return (x[..., :half] / (1 + np.exp(-x[..., :half])) * x[..., half:]).astype(input.dtype)


def wrong(input, **_):
    return np.zeros_like(right(input))


def dead(input, **_):
    os._exit(3)


def slow(input, **_):
    import time

    time.sleep(0.2)
    return right(input)
KERNEL
python=
for candidate in python3 /usr/bin/python3; do "$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break; done
check "a python3 with numpy is there" [ -n "$python" ]
serve="$python $(dirname "$0")/../python/dodona/serve.py $folder/kernel.py"
graded=(grade silu_and_mul "D=16..128" "T=1..8" --dtype input=f16 --nonce 5eed --json --quiet)
what_was_graded() { grep -v '_seconds"\|"printed"' "$1"; }
for kernel in right wrong dead; do
  "$command" "${graded[@]}" --calls 20 -- $serve:$kernel >"$folder/one" 2>"$folder/err"
  one=$?
  job -n 3 "$command" "${graded[@]}" --calls 20 -- $serve:$kernel >"$folder/many" 2>"$folder/err"
  many=$?
  check "a grading of 3 ranks, $kernel: exit code $one, got $many: $(cat "$folder/err")" [ $one -eq $many ]
  what_was_graded "$folder/one" >"$folder/a" && what_was_graded "$folder/many" >"$folder/b"
  check "a grading of 3 ranks is that of one process, $kernel: $(diff "$folder/a" "$folder/b")" cmp -s "$folder/a" "$folder/b"
done
check "a right kernel passes" [ "$("$command" "${graded[@]}" --calls 10 -- $serve:right | grep -c '"verdict": "pass"')" -eq 1 ]
refused "rank 0 of 2 fails: .*nowhere" -n 2 "$command" "${graded[@]}" -- "$folder/nowhere"
refused "rank 1 of 2 has another grading than rank 0" -n 1 "$command" "${graded[@]}" --calls 5 -- $serve:right : -n 1 "$command" "${graded[@]}" --calls 6 -- $serve:right
job -n 2 "$command" "${graded[@]}" --calls 1000 -- $serve:slow >"$folder/many" 2>"$folder/err" &
waiting=$!
victim=$(wait_for find_rank)
sleep 2
killed "a grading" "$victim" $waiting "$folder/kernel.py"

# Nothing but a job of several ranks needs MPI.
check "the command is not linked with MPI" [ -z "$(ldd "$command" | grep -i mpi)" ]
mkdir -p "$folder/bin"
cp "$command" "$folder/bin/dodona"
check "the command starts without its module" "$folder/bin/dodona" --version >/dev/null
OMPI_COMM_WORLD_SIZE=2 "$folder/bin/dodona" $step --tp 2 >"$folder/many" 2>"$folder/err"
check "without its module: $(cat "$folder/err")" grep -q "there is no libdodona_mpi.so beside it" "$folder/err"
: >"$folder/bin/libdodona_mpi.so"
OMPI_COMM_WORLD_SIZE=2 "$folder/bin/dodona" $step --tp 2 >"$folder/many" 2>"$folder/err"
check "with a module that cannot be loaded: $(cat "$folder/err")" grep -q "cannot be loaded: .*too short" "$folder/err"
exit $failed
