# Sourced by the tests of the trainer, with its path as $1: small jobs, and checks that say what
# they miss.
set -u -o pipefail
export LC_ALL=C
train=$PWD/$1
files=$TEST_TMPDIR
small=(--layers=2 --width=32 --heads=2 --context=32)
tiny=(--layers=1 --width=16 --heads=2 --context=16)  # a step takes a few milliseconds

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# expect_line FILE REGEX: a whole line of the file matches.
expect_line() {
  grep -qE "^$2\$" "$1" || fail "no line \"$2\" in $(printf '\n' && cat "$1")"
}

# expect_json FILE FILTER: true for the array of the file's values.
expect_json() {
  jq -es "$2" "$1" >/dev/null || fail "$1 is not so: $2"
}

# The losses and norms of a metrics file, with all digits.
losses() { jq -c '[.step, .loss, .held_out_loss, .grad_norm, .loss_scale]' "$1"; }

# wait_for_line FILE REGEX PROCESS: fails if the process ends before the line is there.
wait_for_line() {
  until grep -qE "$2" "$1" 2>/dev/null; do
    kill -0 "$3" 2>/dev/null || fail "it ended without \"$2\"; $(cat "$1")"
    sleep 0.1
  done
}

# Most likely: it is looked for some time before it is used.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo $port
}

# with_mpirun RANKS COMMAND...
with_mpirun() {
  MASTER_PORT=$(free_port) mpirun --allow-run-as-root --oversubscribe -n "$@"
}

# on_full_disk KILOBYTES COMMAND...: with a file system of that size in folder disk, from which files
# are copied to folder of_disk. Code 77: none may be mounted.
on_full_disk() {
  mkdir -p "$files/disk" "$files/of_disk"
  # shellcheck disable=SC2016
  unshare -rm sh -c 'cd "$1" && mount -t tmpfs -o size="$2"k disk disk || exit 77
    shift 2; "$@"; code=$?
    cp disk/* of_disk; exit $code' - "$files" "$@" || {
    local code=$?
    [ $code -ne 77 ] && unshare -rm true 2>/dev/null || code=77
    return $code
  }
}

# need_programs HOW PROGRAM...: ends the test if one of them is not installed, and says how to.
need_programs() {
  local how=$1 program
  shift
  for program in "$@"; do
    command -v "$program" >/dev/null && continue
    printf '[  SKIPPED ] %s (no %s: it comes with %s)\n' "${0##*/}" "$program" "$how"
    exit 0
  done
}

# need_python_program NAME: the same for one of the virtual environment with PyTorch, in folder
# $python_programs.
need_python_program() {
  local home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
  local cache=${XDG_CACHE_HOME:-$home/.cache}
  python_programs=${BRIGADE_PEERS_VENV:-$cache/brigade/peers/pytorch}/bin
  PATH=$python_programs need_programs 'tools/setup --launchers' "$1"
}

# threads_of RANKS: what the job "${launched[@]}" of as many ranks gives on threads.
threads_of() {
  local job=("${small[@]}" --steps=10 --stage=3)
  "$train" "${job[@]}" --ranks="$1" --metrics="$files/threads" >"$files/report" || fail "exit code $?"
  launched=("${job[@]}" --metrics="$files/processes")
}

# Of the job "${launched[@]}", after it has run; what rank 0 says is in $files/out.
expect_losses_of_threads() {
  [ "$(losses "$files/threads")" = "$(losses "$files/processes")" ] ||
    fail "other losses: $(cat "$files/processes")"
  expect_line "$files/out" 'Report: 10 of 10 steps .*'
  rm "$files/processes"
}
