#include "brigade/emulator/ptx/order.h"

#include "brigade/emulator/ptx/block.h"

namespace brigade::emulator {

int32_t Order::AddPoint(const Point& point, uint64_t id, const std::vector<int32_t>& seen) {
  const device::MutexLock lock(mutex_);
  if (!seen.empty()) {
    std::vector<Acquisition>& acquired = acquired_[point.serial];
    for (const int32_t publication : seen) acquired.push_back({id, publication});
  }
  points_.push_back(point);
  return static_cast<int32_t>(points_.size()) - 1;
}

void Order::Publish(uint64_t address, int32_t point, bool hands_on) {
  const device::MutexLock lock(mutex_);
  const auto found = published_.find(address);
  const bool is_new = found == published_.end();
  if (point == kNone) {
    if (!is_new && !hands_on) published_.erase(found);
    return;
  }
  const int32_t before = hands_on && !is_new ? found->second : kNone;
  published_[address] = static_cast<int32_t>(publications_.size());
  publications_.push_back({point, before, address});
}

int32_t Order::Published(uint64_t address) const {
  const device::MutexLock lock(mutex_);
  const auto found = published_.find(address);
  return found == published_.end() ? kNone : found->second;
}

bool Order::IsBehind(const Point& point, uint64_t past) {
  const AccessId::Others others = AccessId::OthersOf(past);
  if (AccessId::Serial(past) != point.serial || others == AccessId::Others::kOfOtherBlocks) {
    return false;
  }
  const uint64_t barriers = AccessId::BlockEpochsFrom(past, point.block_epoch);
  if (barriers != 0) return AccessId::IsLater(barriers);
  const int warp = point.thread / kLanes;
  if (AccessId::WarpOf(past) != warp || others == AccessId::Others::kOfBlock) return false;
  const auto knows = [&](int lane) {
    return Warp::IsBehind(point.passed[static_cast<size_t>(lane)], AccessId::WarpEpoch(past));
  };
  if (others == AccessId::Others::kNone) return knows(AccessId::Thread(past) % kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!knows(lane)) return false;
  }
  return true;
}

bool Order::IsOrdered(uint64_t past, uint64_t now, uint64_t address, uint64_t first_serial,
                      const Warp& warp) {
  const device::MutexLock lock(mutex_);
  if (publications_.empty()) return false;
  ++searches_;
  std::vector<int32_t> left;
  // Those that `precedes` says the block's accesses to come before.
  const auto add = [&](uint64_t serial, const auto& precedes) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto found = acquired_.find(serial);
    if (found == acquired_.end()) return;
    for (const Acquisition& each : found->second) {
      if (precedes(each.id)) left.push_back(each.publication);
    }
  };
  add(AccessId::Serial(now),
      [&](uint64_t id) { return AccessId::IsOrdered(id, now, first_serial, warp); });
  // The nearest first.
  for (size_t next = 0; next < left.size(); ++next) {
    Publication& publication = publications_[static_cast<size_t>(left[next])];
    if (publication.met == searches_) continue;
    publication.met = searches_;
    const Point& point = points_[static_cast<size_t>(publication.point)];
    const bool is_the_flag = publication.address == address &&
                             AccessId::Serial(past) == point.serial &&
                             AccessId::Thread(past) == point.thread;
    if (is_the_flag || IsBehind(point, past)) return true;
    if (publication.before != kNone) left.push_back(publication.before);
    add(point.serial, [&](uint64_t id) { return IsBehind(point, id); });
  }
  return false;
}

}  // namespace brigade::emulator
