#ifndef BRIGADE_EMULATOR_PTX_BLOCK_H_
#define BRIGADE_EMULATOR_PTX_BLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/order.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

// Generic addresses of what is not in the device's memory; an offset is added.
inline constexpr uint64_t kSharedWindow = uint64_t{0x7e} << 56;
inline constexpr uint64_t kLocalWindow = uint64_t{0x7d} << 56;
inline constexpr uint64_t kParameterWindow = uint64_t{0x7c} << 56;
inline constexpr uint64_t kWindowMask = uint64_t{0xff} << 56;

// What all blocks of a launch share.
struct LaunchState {
  LaunchState(const LoadedModule& loaded, const Kernel& kernel,
              absl::Span<const uint8_t> parameters, const LaunchOptions& options)
      : loaded(loaded),
        kernel(kernel),
        parameters(parameters.begin(), parameters.end()),
        options(options) {}

  const LoadedModule& loaded;
  const Kernel& kernel;
  // As aligned as any of them has to be.
  const std::vector<uint8_t> parameters;
  const LaunchOptions& options;
  // The serial number of the launch's first block; those of later ones follow.
  uint64_t first_serial = 0;
  std::atomic<bool> is_stopped{false};

  // Held by an instruction whose lanes read and write at once.
  device::Mutex atomics;
  Order order;

  device::Mutex mutex;
  // By instruction and kind.
  std::map<std::pair<uint32_t, FindingKind>, Finding> findings ABSL_GUARDED_BY(mutex);
  LaunchCounts counts ABSL_GUARDED_BY(mutex);
};

// Who accessed a byte, and when: the serial number of the block (of all launches of the process),
// how many barriers of the block the thread had passed, how many of its warp, and which thread it
// is. Numbers that no longer fit are reported by Launch, which starts anew.
class AccessId {
 public:
  static constexpr uint64_t kMostSerials = uint64_t{1} << 24;

  static uint64_t Of(uint64_t serial, uint64_t block_epoch, uint64_t warp_epoch, int thread) {
    return serial << kSerialShift | (block_epoch & kBlockEpochMask) << kBlockEpochShift |
           (warp_epoch & kWarpEpochMask) << kWarpEpochShift | static_cast<uint64_t>(thread);
  }

  // Who else has read a byte, besides the thread that the rest names.
  enum class Others : uint8_t { kNone, kOfWarp, kOfBlock, kOfOtherBlocks };
  static Others OthersOf(uint64_t id) { return static_cast<Others>(id >> kOthersShift); }
  // The same access, and one more reader, which no barrier orders.
  static uint64_t With(uint64_t id, uint64_t reader) {
    Others others = Others::kOfWarp;
    if (WarpOf(id) != WarpOf(reader)) others = Others::kOfBlock;
    if (Serial(id) != Serial(reader)) others = Others::kOfOtherBlocks;
    others = std::max(others, OthersOf(id));
    return (id & ~kOthersMask) | static_cast<uint64_t>(others) << kOthersShift;
  }

  static uint64_t Serial(uint64_t id) { return (id & ~kOthersMask) >> kSerialShift; }
  static int Thread(uint64_t id) { return static_cast<int>(id & kThreadMask); }
  static int WarpOf(uint64_t id) { return Thread(id) / kLanes; }
  static uint16_t WarpEpoch(uint64_t id) {
    return static_cast<uint16_t>(id >> kWarpEpochShift & kWarpEpochMask);
  }
  // Barriers of the block from the access on to `block_epoch`, modulo 65536; and whether such a
  // number says that they came later.
  static uint64_t BlockEpochsFrom(uint64_t id, uint64_t block_epoch) {
    return (block_epoch - (id >> kBlockEpochShift)) & kBlockEpochMask;
  }
  static bool IsLater(uint64_t barriers) { return barriers <= kBlockEpochMask / 2; }

  // Whether what `past` says has happened before what `now` does, a lane of `warp`, or is by the
  // same thread. `first_serial`: of the launch.
  static bool IsOrdered(uint64_t past, uint64_t now, uint64_t first_serial, const Warp& warp) {
    if (past == 0 || Serial(past) < first_serial) return true;
    const Others others = OthersOf(past);
    if (Serial(past) != Serial(now) || others == Others::kOfOtherBlocks) return false;
    if (((past ^ now) >> kBlockEpochShift & kBlockEpochMask) != 0) return true;
    if (others == Others::kOfBlock || WarpOf(past) != WarpOf(now)) return false;
    if (others == Others::kNone && Thread(past) == Thread(now)) return true;
    const uint16_t epoch = WarpEpoch(past);
    const int lane = Thread(now) % kLanes;
    return others == Others::kNone ? warp.IsBehind(lane, Thread(past) % kLanes, epoch)
                                   : warp.IsBehindAll(lane, epoch);
  }

 private:
  static constexpr int kWarpEpochShift = 10, kBlockEpochShift = 22, kSerialShift = 38;
  static constexpr int kOthersShift = 62;
  static constexpr uint64_t kThreadMask = (1 << 10) - 1;
  static constexpr uint64_t kWarpEpochMask = (1 << 12) - 1;
  static constexpr uint64_t kBlockEpochMask = (1 << 16) - 1;
  static constexpr uint64_t kOthersMask = uint64_t{3} << kOthersShift;
};

// One block of a launch, and what one host thread counts for it.
class Block {
 public:
  Block(LaunchState& launch, LaunchCounts& counts);

  // Runs block `number` of the grid to its end.
  void Run(int64_t number);

  LaunchState& launch() const { return launch_; }
  LaunchCounts& counts() { return counts_; }
  const Kernel& kernel() const { return launch_.kernel; }
  Memory& memory() const { return launch_.loaded.memory(); }

  // Notes what a lane of `warp` did wrong in an instruction.
  void Report(FindingKind kind, const Warp& warp, int lane, const Instruction& instruction,
              std::string what);

  uint64_t access_id(const Warp& warp, int lane) const {
    return AccessId::Of(serial_, epoch_, warp.epoch(lane), warp.number() * kLanes + lane);
  }

  uint64_t serial() const { return serial_; }
  // Barriers that it has passed.
  uint64_t epoch() const { return epoch_; }

  // Whether reports are left out, for instructions that only show what they would compute.
  void SetSilent(bool is_silent) { is_silent_ = is_silent; }

  // Ends the block after this instruction, or the launch.
  void Stop() { stopped_ = true; }
  void StopLaunch() {
    stopped_ = true;
    launch_.is_stopped.store(true, std::memory_order_relaxed);
  }
  bool stopped() const { return stopped_; }

  struct Bytes {
    std::vector<uint8_t> data;
    std::vector<ByteState> states;
    std::vector<PastAccesses> past;

    void Reset(int64_t bytes, ByteState state);
  };
  Bytes& shared() { return shared_; }
  // Of a thread.
  Bytes& local(int thread);
  // What unwritten bytes that were stored in shared memory come of.
  absl::flat_hash_map<uint64_t, Unwritten::Origin>& shared_origins() { return shared_origins_; }

  // Of the last barrier: the threads that voted yes, and all.
  int64_t votes() const { return votes_; }
  int64_t voters() const { return launch_.options.block.count(); }

  std::string ThreadName(uint64_t id) const;
  // "byte 516 of 512 of shared \"tile\"".
  std::string DescribeShared(uint64_t address) const;
  // "the copy of line 57 by thread (3, 0, 0)": the one that is writing a byte of shared memory.
  std::string DescribeCopy(uint64_t offset) const;

 private:
  void Start(int64_t number);
  void StartShared();
  // False, with a finding, if some threads will never come.
  bool PassBarrier();
  Dim3 ThreadOf(int thread) const;
  int64_t special(Special special, int warp, int lane) const;

  LaunchState& launch_;
  LaunchCounts& counts_;
  // Chooses the order of warps.
  std::minstd_rand random_;
  Dim3 id_;
  uint64_t serial_ = 0;
  uint64_t epoch_ = 0;
  bool stopped_ = false;
  bool is_silent_ = false;
  int64_t votes_ = 0;
  std::vector<std::unique_ptr<Warp>> warps_;
  Bytes shared_;
  absl::flat_hash_map<uint64_t, Unwritten::Origin> shared_origins_;
  std::vector<Bytes> local_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_BLOCK_H_
