#include "brigade/emulator/nccl/rank_group.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/nccl/accumulate.h"
#include "brigade/emulator/nccl/process_memory.h"
#include "brigade/emulator/nccl/shared_monitor.h"

namespace brigade::emulator {

using Lock = SharedMonitor::Lock;

struct RankGroup::Shared {
  // Of the last collective of a slot that has ended.
  struct Outcome {
    uint64_t number;  // + 1
    // Empty: all have their results.
    char error[256];
  };

  SharedMonitor monitor;
  std::atomic<int> joined;
  // No rank is further ahead than by one.
  Outcome outcomes[2];
};

struct RankGroup::CollectivePost {
  // Number + 1 of the collective that this rank waits in, or 0.
  uint64_t number;
  pid_t process;
  CollectivePart part;
};

struct RankGroup::SplitPost {
  uint64_t number;  // + 1
  int color, key;
};

// From one rank to another, in order.
struct RankGroup::Mail {
  static constexpr uint64_t kMostMessages = 256;
  struct Message {
    pid_t process;
    TransferPart part;
  };
  uint64_t posted, taken;
  Message messages[kMostMessages];

  Message& front() { return messages[taken % kMostMessages]; }
};

// Where the arrays lie behind Shared.
struct RankGroup::Layout {
  explicit Layout(int ranks) : size(static_cast<size_t>(ranks)) {}
  size_t joined() const { return (sizeof(Shared) + 63) / 64 * 64; }
  size_t collectives() const { return joined() + (size + 63) / 64 * 64; }
  size_t splits() const { return collectives() + 2 * size * sizeof(CollectivePost); }
  size_t mail() const { return splits() + 2 * size * sizeof(SplitPost); }
  size_t bytes() const { return mail() + size * size * sizeof(Mail); }

  const size_t size;
};

namespace {

absl::Status ErrnoError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

const char* At(const void* array, size_t bytes) { return static_cast<const char*>(array) + bytes; }

bool Scatters(const CollectivePart& part) {
  return part.kind == CollectivePart::Kind::kReduceScatter;
}
bool Gathers(const CollectivePart& part) { return part.kind == CollectivePart::Kind::kAllGather; }

bool AreAlike(const CollectivePart& a, const CollectivePart& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op &&
         a.root == b.root;
}

}  // namespace

size_t InputBytes(const CollectivePart& part, int size) {
  return part.count * BytesOf(part.type) * (Scatters(part) ? static_cast<size_t>(size) : 1);
}

size_t OutputBytes(const CollectivePart& part, int size) {
  return part.count * BytesOf(part.type) * (Gathers(part) ? static_cast<size_t>(size) : 1);
}

absl::StatusOr<std::shared_ptr<RankGroup>> RankGroup::Open(const std::string& name, int size) {
  // Where Yama restricts tracing, ranks of other processes may reach this one's arrays all the
  // same.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return ErrnoError(absl::StrCat("shm_open of ", name));
  // The first that comes makes the group.
  const size_t bytes = Layout(size).bytes();
  struct stat found = {};
  absl::Status status;
  if (flock(file, LOCK_EX) != 0 || fstat(file, &found) != 0) {
    status = ErrnoError("lock of shared memory");
  }
  const bool is_new = found.st_size == 0;
  if (!status.ok()) {
    // Closed below.
  } else if (!is_new && found.st_size != static_cast<off_t>(bytes)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("of ", size, " ranks, where others have another number"));
  } else if (is_new && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    status = ErrnoError("ftruncate of shared memory");
  }
  void* memory = MAP_FAILED;
  if (status.ok()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) status = ErrnoError("mmap of shared memory");
  }
  if (status.ok() && is_new) new (memory) Shared();
  // The mapping would keep the lock.
  flock(file, LOCK_UN);
  close(file);
  BRIGADE_RETURN_IF_ERROR(status);
  return std::shared_ptr<RankGroup>(new RankGroup(name, size, static_cast<Shared*>(memory)));
}

RankGroup::~RankGroup() {
  // One that was refused leaves it to the others.
  if (has_joined_ && !is_complete()) shm_unlink(name_.c_str());
  munmap(shared_, Layout(size_).bytes());
}

absl::Status RankGroup::Join(int rank) {
  const Lock lock(shared_->monitor);
  if (std::exchange(Joined()[static_cast<size_t>(rank)], true)) {
    return absl::InvalidArgumentError(absl::StrCat("as rank ", rank, ", which another one is"));
  }
  has_joined_ = true;
  // All have it mapped: nobody needs the name any more.
  if (++shared_->joined == size_) shm_unlink(name_.c_str());
  return absl::OkStatus();
}

bool RankGroup::is_complete() const { return shared_->joined >= size_; }

absl::Span<bool> RankGroup::Joined() {
  const Layout layout(size_);
  return {reinterpret_cast<bool*>(shared_) + layout.joined(), layout.size};
}

absl::Span<RankGroup::CollectivePost> RankGroup::CollectivePosts(uint64_t number) {
  const Layout layout(size_);
  auto* const posts =
      reinterpret_cast<CollectivePost*>(reinterpret_cast<char*>(shared_) + layout.collectives());
  return {posts + number % 2 * layout.size, layout.size};
}

absl::Span<RankGroup::SplitPost> RankGroup::SplitPosts(uint64_t number) {
  const Layout layout(size_);
  auto* const posts =
      reinterpret_cast<SplitPost*>(reinterpret_cast<char*>(shared_) + layout.splits());
  return {posts + number % 2 * layout.size, layout.size};
}

RankGroup::Mail& RankGroup::MailOf(int from, int to) {
  auto* const mail =
      reinterpret_cast<Mail*>(reinterpret_cast<char*>(shared_) + Layout(size_).mail());
  return mail[from * size_ + to];
}

void RankGroup::Withdraw(int rank) {
  Lock lock(shared_->monitor);
  for (const uint64_t slot : {0, 1}) CollectivePosts(slot)[static_cast<size_t>(rank)].number = 0;
  WithdrawMail(rank);
  lock.WakeAll();
}

void RankGroup::WithdrawMail(int rank) {
  for (int peer = 0; peer < size_; ++peer) {
    Mail& mail = MailOf(rank, peer);
    mail.taken = mail.posted;
  }
}

absl::StatusOr<bool> RankGroup::Run(int rank, uint64_t number, const CollectivePart& mine,
                                    const std::atomic<bool>& aborted) {
  Lock lock(shared_->monitor);
  if (aborted) return false;
  const absl::Span<CollectivePost> posts = CollectivePosts(number);
  Shared::Outcome& outcome = shared_->outcomes[number % 2];
  posts[static_cast<size_t>(rank)] = {number + 1, getpid(), mine};
  if (std::all_of(posts.begin(), posts.end(), [&](const CollectivePost& other) {
        return other.number == number + 1 && AreAlike(other.part, mine);
      })) {
    const absl::Status computed = Compute(posts);
    outcome.number = number + 1;
    absl::SNPrintF(outcome.error, sizeof(outcome.error), "%s", computed.message());
    lock.WakeAll();
    BRIGADE_RETURN_IF_ERROR(computed);
    return true;
  }
  lock.Await([&] { return outcome.number == number + 1 || aborted; });
  if (outcome.number != number + 1) return false;
  if (outcome.error[0] == 0) return true;
  return absl::UnavailableError(absl::StrCat("in another rank: ", outcome.error));
}

// Rounds at each hop, and from the highest rank down: not the bits of a sum in ascending order.
absl::Status RankGroup::Reduce(absl::Span<const CollectivePost> posts, size_t begin, size_t count,
                               char* result) {
  const CollectivePart& first = posts[0].part;
  const size_t bytes = count * BytesOf(first.type), offset = begin * BytesOf(first.type);
  BRIGADE_RETURN_IF_ERROR(
      Fetch(result, posts.back().process, At(posts.back().part.input, offset), bytes));
  fetched_.resize(std::max(fetched_.size(), bytes));
  for (size_t rank = posts.size() - 1; rank-- > 0;) {
    const char* input = At(posts[rank].part.input, offset);
    if (posts[rank].process != getpid()) {
      BRIGADE_RETURN_IF_ERROR(Fetch(fetched_.data(), posts[rank].process, input, bytes));
      input = fetched_.data();
    }
    Accumulate(first.type, first.op, input, count, result);
  }
  Finish(first.type, first.op, size_, count, result);
  return absl::OkStatus();
}

absl::Status RankGroup::Compute(absl::Span<const CollectivePost> posts) {
  using Kind = CollectivePart::Kind;
  const CollectivePart& first = posts[0].part;
  const size_t bytes = first.count * BytesOf(first.type);
  const size_t blocks = Scatters(first) || Gathers(first) ? posts.size() : 1;
  results_.resize(std::max(results_.size(), blocks * bytes));
  for (size_t block = 0; block < blocks; ++block) {
    char* const result = results_.data() + block * bytes;
    if (Scatters(first) || first.kind == Kind::kAllReduce) {
      BRIGADE_RETURN_IF_ERROR(Reduce(posts, block * first.count, first.count, result));
    } else {
      const auto& from = posts[Gathers(first) ? block : static_cast<size_t>(first.root)];
      BRIGADE_RETURN_IF_ERROR(Fetch(result, from.process, from.part.input, bytes));
    }
  }
  for (size_t rank = 0; rank < posts.size(); ++rank) {
    BRIGADE_RETURN_IF_ERROR(Store(posts[rank].process, posts[rank].part.output,
                                  results_.data() + (Scatters(first) ? rank * bytes : 0),
                                  OutputBytes(first, size_)));
  }
  return absl::OkStatus();
}

// Copies what its peer has sent first.
absl::Status RankGroup::Take(int rank, const TransferPart& receive) {
  Mail& mail = MailOf(receive.peer, rank);
  const Mail::Message& message = mail.front();
  ++mail.taken;
  return Fetch(receive.data, message.process, message.part.data, receive.bytes);
}

absl::StatusOr<bool> RankGroup::Run(int rank, absl::Span<const TransferPart> transfers,
                                    const std::atomic<bool>& aborted) {
  Lock lock(shared_->monitor);
  if (aborted) return false;
  absl::InlinedVector<TransferPart, kFewTransfers> receives;
  for (const TransferPart& transfer : transfers) {
    if (!transfer.sends) {
      receives.push_back(transfer);
      continue;
    }
    Mail& mail = MailOf(rank, transfer.peer);
    if (mail.posted - mail.taken == Mail::kMostMessages) {
      WithdrawMail(rank);
      return absl::ResourceExhaustedError(
          absl::StrCat("a group has more than ", Mail::kMostMessages, " sends to one rank"));
    }
    mail.messages[mail.posted++ % Mail::kMostMessages] = {getpid(), transfer};
  }
  lock.WakeAll();
  // Any that has come, but in order from each peer.
  const auto ready = [&](const TransferPart& receive) {
    Mail& mail = MailOf(receive.peer, rank);
    return mail.taken < mail.posted && mail.front().part.bytes == receive.bytes &&
           std::none_of(receives.cbegin(), &receive,
                        [&](const TransferPart& earlier) { return earlier.peer == receive.peer; });
  };
  while (!receives.empty()) {
    auto next = receives.end();
    lock.Await([&] {
      next = std::find_if(receives.begin(), receives.end(), ready);
      return aborted || next != receives.end();
    });
    if (aborted) return false;
    const absl::Status taken = Take(rank, *next);
    // The caller may free what it sends when this has failed.
    if (!taken.ok()) WithdrawMail(rank);
    lock.WakeAll();
    BRIGADE_RETURN_IF_ERROR(taken);
    receives.erase(next);
  }
  for (const TransferPart& transfer : transfers) {
    if (!transfer.sends) continue;
    const Mail& mail = MailOf(rank, transfer.peer);
    lock.Await([&] { return aborted || mail.taken == mail.posted; });
  }
  return !aborted;
}

void RankGroup::PostSplit(int rank, uint64_t number, int color, int key) {
  const Lock lock(shared_->monitor);
  SplitPosts(number)[static_cast<size_t>(rank)] = {number + 1, color, key};
}

std::optional<RankGroup::Place> RankGroup::PlaceInSplit(int rank, uint64_t number) {
  const Lock lock(shared_->monitor);
  const absl::Span<const SplitPost> posts = SplitPosts(number);
  const SplitPost& mine = posts[static_cast<size_t>(rank)];
  Place place;
  for (int other = 0; other < size_; ++other) {
    const SplitPost& post = posts[static_cast<size_t>(other)];
    if (post.number != number + 1) return std::nullopt;
    if (post.color != mine.color) continue;
    ++place.size;
    if (post.key < mine.key || (post.key == mine.key && other < rank)) ++place.rank;
  }
  return place;
}

}  // namespace brigade::emulator
