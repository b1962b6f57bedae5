#ifndef BRIGADE_EMULATOR_PTX_ASYNC_COPIES_H_
#define BRIGADE_EMULATOR_PTX_ASYNC_COPIES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "brigade/emulator/ptx/module.h"

namespace brigade::emulator {

// The copies of cp.async that the lanes of a warp have begun and not waited for. A lane's copies
// form groups: those since its last commit, those of the commit before, and so on.
class AsyncCopies {
 public:
  static constexpr int kMostBytes = 16;

  struct Copy {
    const Instruction* instruction = nullptr;
    // In shared memory, and in global memory.
    uint64_t to = 0, from = 0;
    // Of them so many are read; the others become zeros.
    int bytes = 0, read = 0;
    // What was read, and which of it nobody has written, one bit for each byte.
    std::array<uint8_t, kMostBytes> data = {};
    uint32_t unwritten = 0;
    // Of those, for reports.
    std::string what;
    int64_t group = 0;
  };

  void Clear() { lanes_ = {}; }

  void Begin(int lane, Copy copy) {
    Lane& of = lanes_[static_cast<size_t>(lane)];
    copy.group = of.committed;
    of.copies.push_back(std::move(copy));
  }
  void Commit(int lane) { ++lanes_[static_cast<size_t>(lane)].committed; }

  // Takes out the copies of all groups that have been committed but for the last `left`.
  std::vector<Copy> Await(int lane, uint64_t left) {
    Lane& of = lanes_[static_cast<size_t>(lane)];
    const int64_t end =
        left < static_cast<uint64_t>(of.committed) ? of.committed - static_cast<int64_t>(left) : 0;
    const auto rest = std::find_if(of.copies.begin(), of.copies.end(),
                                   [&](const Copy& copy) { return copy.group >= end; });
    std::vector<Copy> awaited(of.copies.begin(), rest);
    of.copies.erase(of.copies.begin(), rest);
    return awaited;
  }

  // The copy of a lane that writes a byte of shared memory; null if there is none.
  const Copy* Find(int lane, uint64_t to) const {
    for (const Copy& copy : lanes_[static_cast<size_t>(lane)].copies) {
      if (to - copy.to < static_cast<uint64_t>(copy.bytes)) return &copy;
    }
    return nullptr;
  }

 private:
  struct Lane {
    // In the order of their groups.
    std::vector<Copy> copies;
    int64_t committed = 0;
  };

  std::array<Lane, kLanes> lanes_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_ASYNC_COPIES_H_
