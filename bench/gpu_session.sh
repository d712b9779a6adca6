#!/usr/bin/env bash
# One sitting on a GPU machine: build, GPU tests, measurements; JSON and logs into $OUT. A part that fails does not stop the next.
#
#   OUT=out CRITERION_ROOT=… XXHASH_INCLUDE_DIR=… bench/gpu_session.sh [SECONDS]
#
# Uses the interpreter MATHFUSE_PYTHON (default: python3) and its packages as they are: no apt, no pip. SECONDS (default 520) is
# what all of it may take, BENCH_SECONDS (150) what the suite on the GPU may, BENCH_TUNE (2) how long a plan is tuned at most.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
out=${OUT:-out}
mkdir -p "$out" build
out=$(cd "$out" && pwd)
deadline=$((SECONDS + ${1:-520}))
export MATHFUSE_PYTHON=${MATHFUSE_PYTHON:-$(command -v python3)} PYTHONUNBUFFERED=1 MATHFUSE_RESULTS=$PWD/build/gpu-results.txt
export PYTHONPATH=$PWD/build/stage${PYTHONPATH:+:$PYTHONPATH}
[ -z "${CRITERION_ROOT:-}" ] || CRITERION_ROOT=$(realpath "$CRITERION_ROOT")
[ -z "${XXHASH_INCLUDE_DIR:-}" ] || XXHASH_INCLUDE_DIR=$(realpath "$XXHASH_INCLUDE_DIR")
summary=()
rm -f "$MATHFUSE_RESULTS"

# part NAME SECONDS COMMAND...
part() {
    local name=$1 limit=$2 started=$SECONDS status
    shift 2
    local left=$((deadline - SECONDS))
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        summary+=("$name: left out, no time")
        return
    fi
    echo "== $name"
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    tail -n 25 "$out/$name.log"
    summary+=("$name: exit $status, $((SECONDS - started)) s")
}

part info 30 nvidia-smi
part build 200 ./dev build
part libraries 30 "$MATHFUSE_PYTHON" -m mathfuse info cuda
part c-tests 150 ./dev gpu c
part python-tests 170 ./dev gpu python
# A process that ended, or lost the GPU, in one problem is followed by one that goes on after it.
suite() {
    local status=0 try
    "$MATHFUSE_PYTHON" -m mathfuse bench "$@" || status=$?
    for try in 1 2 3; do
        [ "$status" -gt 2 ] || break
        status=0
        "$MATHFUSE_PYTHON" -m mathfuse bench "$@" --resume || status=$?
    done
    return "$status"
}
export -f suite
budget=${BENCH_SECONDS:-150}
part bench-gpu $((budget + 30)) bash -c 'suite "$@"' suite bench/problems/gpu.txt --device cuda --tune "${BENCH_TUNE:-2}" \
    --budget "$budget" --output "$out/gpu.json"
part bench-cpu 60 bash -c 'suite "$@"' suite bench/problems/cpu.txt --device cpu --budget 50 --output "$out/cpu-of-gpu-machine.json"
# Everything in one file too: few files come back.
cat "$out"/*.log >"$out/all.txt"
mkdir -p "$out/logs" && mv "$out"/*.log "$out/logs/"

echo "== summary"
grep -h -E 'FAILED|ERROR' "$out"/logs/*.log | head -n 30
[ ! -s "$MATHFUSE_RESULTS" ] || awk '{ p += $2; f += $3; s += $4 } END { printf "C tests: %d passed, %d failed, %d skipped\n", p, f, s }' "$MATHFUSE_RESULTS"
grep -h -E '^[0-9]+ (passed|failed)|[0-9]+ passed' "$out/logs/python-tests.log" | tail -n 1
grep -h -E '^\| `' "$out"/logs/bench-*.log
printf '%s\n' "${summary[@]}"
