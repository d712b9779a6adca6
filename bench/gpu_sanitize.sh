#!/usr/bin/env bash
# compute-sanitizer over the kernels of the GPU tests: memcheck (accesses out of bounds or misaligned), then racecheck (races on
# shared memory). One line a tool and program; a finding or a failed test fails.
#
#   bench/gpu_sanitize.sh [BUILD [SECONDS]]      BUILD: where the C tests lie (build/c); SECONDS: for each program (300)
#
# MATHFUSE_PYTHON is the interpreter for the Python tests (default: python3), which must find the package. COMPUTE_SANITIZER is the
# tool, where it is not on PATH or below CUDA_HOME.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:-build/c}
limit=${2:-300}
python=${MATHFUSE_PYTHON:-python3}
logs=build/sanitize
mkdir -p "$logs"

find_sanitizer() {
    local candidate
    for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
        "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
        [ -n "$candidate" ] && [ -x "$candidate" ] && echo "$candidate" && return
    done
    echo "compute-sanitizer was not found: install it with the CUDA toolkit, or set COMPUTE_SANITIZER" >&2
    exit 3
}
sanitizer=$(find_sanitizer) || exit 3
failed=0

# sanitized TOOL NAME COMMAND...
sanitized() {
    local tool=$1 name=$2 log=$logs/$1-$2.log status findings options=()
    shift 2
    [ "$tool" != memcheck ] || options=(--report-api-errors no) # some tests ask for what CUDA refuses
    timeout -k 10 "$limit" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --print-limit 20 \
        "${options[@]}" "$@" >"$log" 2>&1
    status=$?
    findings=$(grep -c -E 'Invalid __|Misaligned|Out-of-range|hazard|Race reported|Uninitialized' "$log")
    if [ "$findings" -gt 0 ] || [ "$status" -ne 0 ]; then
        failed=1
        echo "FAILED  $tool $name: $findings findings, exit $status; see $log"
        grep -E -A 12 'Invalid __|Misaligned|Out-of-range|hazard|Race reported' "$log" | head -n 40
    else
        echo "ok      $tool $name"
    fi
}

for tool in memcheck racecheck; do
    for program in "$build"/tests/test_gpu_*; do
        [ -x "$program" ] && sanitized "$tool" "$(basename "$program")" "$program" --jobs 1
    done
    sanitized "$tool" python-device "$python" -m pytest -q -m gpu -p no:cacheprovider tests/python/test_device_kernels.py \
        tests/python/test_device_header.py tests/python/test_device_examples.py -k 'not numba'
done
exit "$failed"
