#!/bin/bash
# tools/thread_safety reports an access without its mutex by file and line, wherever the mutex is
# declared, and is silent on code that locks.
set -u
if ! command -v clang++ >/dev/null && ! command -v clang++-14 >/dev/null; then
  echo "clang is not installed; run tools/setup" >&2
  exit 1
fi
repo=$TEST_TMPDIR/repo
mkdir -p "$repo"/{tools,device/threads,zero,tests,.clangd_include} || exit 1
cp -L tools/thread_safety "$repo/tools/" && cp -L device/threads/{deadline,mutex}.h "$repo/device/threads/" ||
  exit 1
cd "$repo" && git init -q . && ln -s .. .clangd_include/brigade || exit 1

status=0
# expect STATUS TEXT...: what tools/thread_safety exits with and prints somewhere (no text:
# nothing).
expect() {
  local wanted=$1 output code text
  shift
  git add -A . || exit 1
  output=$(tools/thread_safety 2>&1)
  code=$?
  for text in "$@"; do
    [[ $output == *"$text"* ]] && continue
    printf 'missing: %s\n' "$text"
    status=1
  done
  if [ $code -ne "$wanted" ] || { [ $# -eq 0 ] && [ -n "$output" ]; }; then
    printf 'expected %s, got %d and:\n%s\n\n' "$wanted" $code "$output"
    status=1
  fi
}

cat >zero/stats.h <<'END'
#include "brigade/device/threads/mutex.h"
class Stats {
 public:
  int A(); int B(); int C(); int D(); int E();
 private:
  int Locked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return bytes_; }
  brigade::device::Mutex mutex_;
  brigade::device::CondVar changed_;
  int bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};
END
cat >zero/stats.cc <<'END'
#include "brigade/zero/stats.h"
using Lock = brigade::device::MutexLock;
int Stats::A() { Lock lock(mutex_); return bytes_; }
int Stats::B() { Lock lock(mutex_); while (bytes_ == 0) changed_.Wait(mutex_); return Locked(); }
int Stats::C() { Lock lock(mutex_); lock.Unlock(); lock.Lock(); return bytes_; }
END
# Tests are not checked, nor is what needs CUDA's headers.
printf '#include "brigade/zero/stats.h"\nint Stats::A() { return bytes_; }\n' >tests/stats.cc
printf '#include "cuda_not_installed.h"\n#include "brigade/device/threads/mutex.h"\nbrigade::device::Mutex m;\n' >zero/gpu.cc
expect 0

# This file names no mutex: its header does.
cat >zero/stats.cc <<'END'
#include "brigade/zero/stats.h"
int Stats::A() { return bytes_; }
int Stats::B() { return Locked(); }
END
cat >zero/more.cc <<'END'
#include "brigade/zero/stats.h"
int Stats::C() { brigade::device::MutexLock lock(mutex_); lock.Unlock(); return bytes_; }
int Stats::D() { changed_.Wait(mutex_); return 0; }
int Stats::E() { mutex_.Lock(); return bytes_; }
END
printf '#include "not_there.h"\n#include "brigade/device/threads/mutex.h"\nbrigade::device::Mutex m;\n' >zero/gpu.cc
expect 1 \
  "zero/stats.cc:2:25: error: reading variable 'bytes_' requires holding mutex 'mutex_'" \
  "zero/stats.cc:3:25: error: calling function 'Locked' requires holding mutex 'mutex_'" \
  "zero/more.cc:2:81: error: reading variable 'bytes_' requires holding mutex 'mutex_'" \
  "zero/more.cc:3:27: error: calling function 'Wait' requires holding mutex 'mutex_'" \
  "zero/more.cc:4:48: error: mutex 'mutex_' is still held at the end of function" \
  "'not_there.h' file not found"

exit $status
