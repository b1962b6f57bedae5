#include "brigade/emulator/nccl/rank_group.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/reduce/reduce_cpu.h"
#include "brigade/precision/dtype.h"

namespace brigade::emulator {
namespace {

using precision::DType;

DType DTypeOf(NcclType type) {
  switch (type) {
    case NcclType::kInt32:
      return DType::kInt32;
    case NcclType::kInt64:
      return DType::kInt64;
    case NcclType::kFloat16:
      return DType::kFloat16;
    case NcclType::kFloat32:
      return DType::kFloat32;
    case NcclType::kFloat64:
      return DType::kFloat64;
    case NcclType::kBfloat16:
      return DType::kBFloat16;
    default:
      return DType::kUint8;
  }
}

kernels::ReduceOp OpOf(NcclOp op) {
  if (op == NcclOp::kMin) return kernels::ReduceOp::kMin;
  return op == NcclOp::kMax ? kernels::ReduceOp::kMax : kernels::ReduceOp::kSum;
}

void Move(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

char* At(const void* array, size_t bytes) {
  return const_cast<char*>(static_cast<const char*>(array)) + bytes;
}

}  // namespace

size_t BytesOf(NcclType type) { return static_cast<size_t>(precision::SizeOf(DTypeOf(type))); }

RankGroup::RankGroup(int size) : size_(size), mail_(static_cast<size_t>(size * size)) {
  for (Slot& slot : slots_) {
    slot.posts.resize(static_cast<size_t>(size));
    slot.there.resize(static_cast<size_t>(size));
  }
  for (Mail& mail : mail_) mail.messages.reserve(8);
}

void RankGroup::Wake() {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void RankGroup::Run(int rank, uint64_t number, const CollectivePart& mine,
                    const std::atomic<bool>& aborted, device::ThreadPool& pool) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[number % slots_.size()];
  slot.posts[static_cast<size_t>(rank)] = mine;
  slot.there[static_cast<size_t>(rank)] = 1;
  if (++slot.arrived == size_ && AreAlike(slot)) {
    Compute(slot, pool);
    slot.done = number + 1;
    slot.arrived = 0;
    std::fill(slot.there.begin(), slot.there.end(), 0);
    changed_.notify_all();
    return;
  }
  changed_.wait(lock, [&] { return slot.done == number + 1 || aborted; });
  if (slot.done == number + 1) return;
  slot.there[static_cast<size_t>(rank)] = 0;  // nobody reads this rank's arrays any more
  --slot.arrived;
}

bool RankGroup::AreAlike(const Slot& slot) const {
  const CollectivePart& first = slot.posts[0];
  return std::all_of(slot.posts.begin(), slot.posts.end(), [&](const CollectivePart& other) {
    return other.kind == first.kind && other.count == first.count && other.type == first.type &&
           other.op == first.op && other.root == first.root;
  });
}

// Rounds at each hop, and from the highest rank down: not the bits of kDirect.
void RankGroup::Reduce(const Slot& slot, size_t begin, size_t count, char* result,
                       device::ThreadPool& pool) {
  const CollectivePart& first = slot.posts[0];
  const size_t bytes = BytesOf(first.type);
  Move(result, At(slot.posts.back().input, begin * bytes), count * bytes);
  void* const target = result;
  for (size_t rank = slot.posts.size() - 1; rank-- > 0;) {
    const void* const sources[] = {result, At(slot.posts[rank].input, begin * bytes)};
    kernels::ReduceCpu(sources, {&target, 1}, static_cast<int64_t>(count), DTypeOf(first.type),
                       OpOf(first.op), pool);
  }
}

void RankGroup::Compute(const Slot& slot, device::ThreadPool& pool) {
  using Kind = CollectivePart::Kind;
  const CollectivePart& first = slot.posts[0];
  const size_t bytes = first.count * BytesOf(first.type);
  const bool scatters = first.kind == Kind::kReduceScatter;
  if (scatters || first.kind == Kind::kAllReduce) {
    const size_t all = scatters ? bytes * slot.posts.size() : bytes;
    if (results_.size() < all) results_.resize(all);
    for (size_t part = 0; part < (scatters ? slot.posts.size() : 1); ++part) {
      Reduce(slot, part * first.count, first.count, results_.data() + part * bytes, pool);
    }
  }
  for (size_t rank = 0; rank < slot.posts.size(); ++rank) {
    void* const output = slot.posts[rank].output;
    switch (first.kind) {
      case Kind::kAllReduce:
        Move(output, results_.data(), bytes);
        break;
      case Kind::kReduceScatter:
        Move(output, results_.data() + rank * bytes, bytes);
        break;
      case Kind::kAllGather:
        for (size_t from = 0; from < slot.posts.size(); ++from) {
          Move(At(output, from * bytes), slot.posts[from].input, bytes);
        }
        break;
      case Kind::kBroadcast:
        Move(output, slot.posts[static_cast<size_t>(first.root)].input, bytes);
        break;
    }
  }
}

void RankGroup::Run(int rank, absl::Span<const TransferPart> transfers,
                    const std::atomic<bool>& aborted) {
  std::unique_lock lock(mutex_);
  for (const TransferPart& transfer : transfers) {
    if (!transfer.sends) continue;
    Mail& mail = MailOf(rank, transfer.peer);
    mail.messages.push_back(transfer);
    ++mail.posted;
  }
  changed_.notify_all();
  for (const TransferPart& transfer : transfers) {
    if (transfer.sends) continue;
    Mail& mail = MailOf(transfer.peer, rank);
    changed_.wait(lock, [&] {
      return aborted || (!mail.messages.empty() && mail.messages.front().bytes == transfer.bytes);
    });
    if (aborted) break;
    Move(transfer.data, mail.messages.front().data, transfer.bytes);
    mail.messages.erase(mail.messages.begin());
    ++mail.taken;
    changed_.notify_all();
  }
  for (const TransferPart& transfer : transfers) {
    if (!transfer.sends) continue;
    Mail& mail = MailOf(rank, transfer.peer);
    changed_.wait(lock, [&] { return aborted || mail.taken == mail.posted; });
    if (aborted) mail.messages.clear();
  }
}

}  // namespace brigade::emulator
