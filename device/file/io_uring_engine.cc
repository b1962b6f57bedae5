#include "brigade/device/file/io_uring_engine.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "brigade/device/status_macros.h"

namespace brigade::device::internal {
namespace {

absl::Status Refused(absl::string_view call) {
  return absl::UnavailableError(absl::ErrnoToStatus(errno, call).message());
}

// The kernel reads and writes the rings' indices at the same time.
uint32_t LoadShared(uint32_t* from) {
  return std::atomic_ref<uint32_t>(*from).load(std::memory_order_acquire);
}
void StoreShared(uint32_t* to, uint32_t value) {
  std::atomic_ref<uint32_t>(*to).store(value, std::memory_order_release);
}

// Memory shared with the kernel.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, uint64_t offset, size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                     static_cast<off_t>(offset))) {}
  ~Mapping() {
    if (ok()) ::munmap(data_, bytes_);
  }
  Mapping(Mapping&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, MAP_FAILED)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }

  bool ok() const { return data_ != MAP_FAILED; }
  template <typename T>
  T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + offset);
  }

 private:
  size_t bytes_ = 0;
  void* data_ = MAP_FAILED;
};

class RingQueue final : public FileQueue {
 public:
  static absl::StatusOr<std::unique_ptr<RingQueue>> Create(int depth) {
    io_uring_params params = {};
    const long fd = ::syscall(__NR_io_uring_setup, static_cast<unsigned>(depth), &params);
    if (fd < 0) return Refused("io_uring_setup");
    std::unique_ptr<RingQueue> queue(new RingQueue(static_cast<int>(fd)));
    // Of Linux 5.6, which also has plain reads and writes.
    if ((params.features & IORING_FEAT_RW_CUR_POS) == 0) {
      return absl::UnavailableError("the kernel's io_uring is older than Linux 5.6");
    }
    BRIGADE_RETURN_IF_ERROR(queue->Map(params));
    return queue;
  }

  // What was closed with requests in flight would go on in memory that may be gone: the caller has
  // taken all of them back.
  ~RingQueue() override { ::close(fd_); }

  void Start(FileRequest& request) override {
    io_uring_sqe& entry = Entry(request.write ? IORING_OP_WRITE : IORING_OP_READ);
    entry.fd = request.fd;
    entry.addr = reinterpret_cast<uint64_t>(request.data);
    entry.len = static_cast<uint32_t>(request.bytes);
    entry.off = static_cast<uint64_t>(request.offset);
    entry.user_data = reinterpret_cast<uint64_t>(&request);
    Publish();
  }

  FileRequest& Next() override {
    for (;;) {
      const bool some_ended = LoadShared(cq_tail_) != cq_head_value_;
      // As long as some have ended, those started meanwhile go together, but for too many: that
      // spares calls, and half of the requests are with the kernel.
      if (!some_ended || 2 * NotSubmitted() >= in_flight_) {
        const int error = Enter(some_ended ? 0 : 1);
        if (error != 0 && NotSubmitted() == in_flight_) return Unsubmit(error);
        // The others are with the kernel, and end without its call.
        if (error != 0 && !some_ended) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      if (LoadShared(cq_tail_) != cq_head_value_) break;
    }
    const io_uring_cqe entry = cqes_[cq_head_value_ & cq_mask_];
    StoreShared(cq_head_, ++cq_head_value_);
    --in_flight_;
    auto& request = *reinterpret_cast<FileRequest*>(entry.user_data);
    request.result = entry.res;
    return request;
  }

  // A request that does nothing goes there and back: setting a ring up may be permitted where using
  // it is not.
  absl::Status Try() {
    Entry(IORING_OP_NOP);
    Publish();
    const int error = Enter(1);
    errno = error;
    return error == 0 ? absl::OkStatus() : Refused("io_uring_enter");
  }

 private:
  explicit RingQueue(int fd) : fd_(fd) {}

  absl::Status Map(const io_uring_params& params) {
    // One mapping for both rings, since Linux 5.4.
    const size_t ring_bytes =
        std::max(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                 params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    rings_ = Mapping(fd_, IORING_OFF_SQ_RING, ring_bytes);
    if (!rings_.ok()) return Refused("mmap of an io_uring");
    entries_ = Mapping(fd_, IORING_OFF_SQES, params.sq_entries * sizeof(io_uring_sqe));
    if (!entries_.ok()) return Refused("mmap of an io_uring");
    sqes_ = entries_.At<io_uring_sqe>(0);
    sq_head_ = rings_.At<uint32_t>(params.sq_off.head);
    sq_tail_ = rings_.At<uint32_t>(params.sq_off.tail);
    sq_mask_ = *rings_.At<uint32_t>(params.sq_off.ring_mask);
    sq_array_ = rings_.At<uint32_t>(params.sq_off.array);
    cq_head_ = rings_.At<uint32_t>(params.cq_off.head);
    cq_tail_ = rings_.At<uint32_t>(params.cq_off.tail);
    cq_mask_ = *rings_.At<uint32_t>(params.cq_off.ring_mask);
    cqes_ = rings_.At<io_uring_cqe>(params.cq_off.cqes);
    return absl::OkStatus();
  }

  uint32_t NotSubmitted() const { return sq_tail_value_ - LoadShared(sq_head_); }

  io_uring_sqe& Entry(uint8_t opcode) {
    const uint32_t index = sq_tail_value_ & sq_mask_;
    sq_array_[index] = index;
    sqes_[index] = {};
    sqes_[index].opcode = opcode;
    return sqes_[index];
  }

  void Publish() {
    StoreShared(sq_tail_, ++sq_tail_value_);
    ++in_flight_;
  }

  // Submits what was not and waits for so many ends. 0 or errno.
  int Enter(uint32_t ends) {
    const long result = ::syscall(__NR_io_uring_enter, fd_, NotSubmitted(), ends,
                                  ends > 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0);
    return result >= 0 || errno == EINTR ? 0 : errno;
  }

  // Takes the last request back, which the kernel does not know of: without a call it does not look
  // at the ring.
  FileRequest& Unsubmit(int error) {
    StoreShared(sq_tail_, --sq_tail_value_);
    --in_flight_;
    auto& request = *reinterpret_cast<FileRequest*>(sqes_[sq_tail_value_ & sq_mask_].user_data);
    request.result = -error;
    return request;
  }

  const int fd_;
  Mapping rings_, entries_;
  io_uring_sqe* sqes_ = nullptr;
  uint32_t *sq_head_ = nullptr, *sq_tail_ = nullptr, *sq_array_ = nullptr;
  uint32_t *cq_head_ = nullptr, *cq_tail_ = nullptr;
  const io_uring_cqe* cqes_ = nullptr;
  uint32_t sq_mask_ = 0, cq_mask_ = 0;
  // As this side has last stored them.
  uint32_t sq_tail_value_ = 0, cq_head_value_ = 0;
  uint32_t in_flight_ = 0;
};

class IoUringEngine final : public FileEngine {
 public:
  std::string description() const override { return "io_uring"; }

  absl::StatusOr<std::unique_ptr<FileQueue>> CreateQueue(int depth) override {
    return RingQueue::Create(depth);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileEngine>> CreateIoUringEngine() {
  BRIGADE_ASSIGN_OR_RETURN(auto ring, RingQueue::Create(1));
  BRIGADE_RETURN_IF_ERROR(ring->Try());
  return std::make_unique<IoUringEngine>();
}

}  // namespace brigade::device::internal
