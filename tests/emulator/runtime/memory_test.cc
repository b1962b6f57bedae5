// Allocations, copies, fills and variables.

#include <cstring>
#include <numeric>

#include "brigade/tests/emulator/runtime/kernels.h"
#include "brigade/tests/emulator/runtime/testing.h"

namespace brigade::emulator {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSize = 64;
constexpr size_t kBytes = kSize * sizeof(int);

// Page-locked ints.
class Pinned {
 public:
  explicit Pinned(int size) : size_(size) {
    EXPECT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&data_), size * sizeof(int)));
    std::fill_n(data_, size, 0);
  }
  ~Pinned() { EXPECT_CUDA(cudaFreeHost(data_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  operator int*() const { return data_; }  // NOLINT: as the pointer itself
  std::vector<int> Values() const { return std::vector<int>(data_, data_ + size_); }

 private:
  int size_ = 0;
  int* data_ = nullptr;
};

class MemoryTest : public RuntimeTest {
 protected:
  static std::vector<int> Numbers() {
    std::vector<int> numbers(kSize);
    std::iota(numbers.begin(), numbers.end(), 1);
    return numbers;
  }

  Stream stream_;
  Ints device_{kSize}, other_device_{kSize};
  Pinned pinned_{kSize}, other_pinned_{kSize};
  std::vector<int> pageable_ = std::vector<int>(kSize), other_pageable_ = std::vector<int>(kSize);
};

TEST_F(MemoryTest, CopiesBetweenAllPlacesWithTheRightKindAlone) {
  struct Place {
    bool is_device;
    int *to, *from;
  };
  const Place places[] = {{true, device_, other_device_},
                          {false, pinned_, other_pinned_},
                          {false, pageable_.data(), other_pageable_.data()}};
  for (const Place& from : places) {
    for (const Place& to : places) {
      const cudaMemcpyKind right =
          to.is_device ? (from.is_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                       : (from.is_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
      for (int kind = cudaMemcpyHostToHost; kind <= cudaMemcpyDefault; ++kind) {
        const std::vector<int> numbers = Numbers();
        ASSERT_CUDA(cudaMemcpy(from.from, numbers.data(), kBytes, cudaMemcpyDefault));
        ASSERT_CUDA(cudaMemset(device_, 0, kBytes));
        ASSERT_CUDA(cudaDeviceSynchronize());
        const bool is_right = kind == right || kind == cudaMemcpyDefault;
        const auto copy_kind = static_cast<cudaMemcpyKind>(kind);
        EXPECT_EQ(cudaMemcpy(to.to, from.from, kBytes, copy_kind),
                  is_right ? cudaSuccess : cudaErrorInvalidValue);
        ASSERT_CUDA(cudaDeviceSynchronize());
        EXPECT_EQ(cudaMemcpyAsync(to.to, from.from, kBytes, copy_kind, stream_),
                  is_right ? cudaSuccess : cudaErrorInvalidValue);
        ASSERT_CUDA(cudaDeviceSynchronize());
        if (!is_right) {
          EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("cudaMemcpy: the direction"),
                                               HasSubstr("cudaMemcpyAsync: the direction")));
          continue;
        }
        std::vector<int> copied(kSize);
        ASSERT_CUDA(cudaMemcpy(copied.data(), to.to, kBytes, cudaMemcpyDefault));
        EXPECT_EQ(copied, numbers);
      }
    }
  }
  EXPECT_EQ(cudaMemcpy(pinned_, other_pinned_, 4, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
}

TEST_F(MemoryTest, AnAsyncCopyFromPageableMemoryHasReadItWhenTheCallReturns) {
  Gate gate(stream_);
  pageable_ = Numbers();
  ASSERT_CUDA(cudaMemcpyAsync(device_, pageable_.data(), kBytes, cudaMemcpyHostToDevice, stream_));
  std::fill(pageable_.begin(), pageable_.end(), -1);
  gate.Open();
  EXPECT_EQ(device_.Values(), Numbers());
}

TEST_F(MemoryTest, AnAsyncCopyFromPageLockedMemoryReadsItInTheStreamsOrder) {
  Gate gate(stream_);
  ASSERT_CUDA(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_));
  std::fill_n(static_cast<int*>(pinned_), kSize, 5);
  gate.Open();
  EXPECT_THAT(device_.Values(), Each(5));
}

TEST_F(MemoryTest, AnAsyncCopyToPageableMemoryIsDoneWhenTheCallReturns) {
  Gate gate(stream_);
  ASSERT_CUDA(Add(device_, kSize, 3, stream_));
  std::thread opener([&] { gate.OpenLate(); });
  ASSERT_CUDA(cudaMemcpyAsync(pageable_.data(), device_, kBytes, cudaMemcpyDeviceToHost, stream_));
  EXPECT_THAT(pageable_, Each(3));
  opener.join();
}

TEST_F(MemoryTest, AnAsyncCopyToPageLockedMemoryIsInTheStreamsOrder) {
  ASSERT_CUDA(Add(device_, kSize, 3, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  Gate gate(stream_);
  ASSERT_CUDA(cudaMemcpyAsync(pinned_, device_, kBytes, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_THAT(pinned_.Values(), Each(0));
  gate.Open();
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(pinned_.Values(), Each(3));
}

TEST_F(MemoryTest, CopiesWithinTheHostAreDoneInOrderWhenTheCallReturns) {
  for (int* from : {static_cast<int*>(pinned_), pageable_.data()}) {
    Gate gate(stream_);
    const auto write = [](void* data) { *static_cast<int*>(data) = 9; };
    ASSERT_CUDA(cudaLaunchHostFunc(stream_, write, from));
    std::thread opener([&] { gate.OpenLate(); });
    ASSERT_CUDA(cudaMemcpyAsync(other_pinned_, from, 4, cudaMemcpyHostToHost, stream_));
    EXPECT_EQ(other_pinned_[0], 9);
    other_pinned_[0] = 0;
    opener.join();
  }
}

// Source: CUDA Runtime API, "API synchronization behavior".
TEST_F(MemoryTest, CopiesWithinADeviceAndFillsReturnBeforeTheyAreDone) {
  {
    Gate gate(nullptr);
    ASSERT_CUDA(cudaMemcpy(device_, other_device_, kBytes, cudaMemcpyDeviceToDevice));
    ASSERT_CUDA(cudaMemset(device_, 1, kBytes));
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  }
  EXPECT_THAT(device_.Values(), Each(0x01010101));
  Gate gate(nullptr);
  std::thread opener([&] { gate.OpenLate(); });
  ASSERT_CUDA(cudaMemset(pinned_, 2, kBytes));
  EXPECT_THAT(pinned_.Values(), Each(0x02020202));
  opener.join();
}

TEST_F(MemoryTest, ACopyToTheHostWaitsForTheLegacyStream) {
  Gate gate(nullptr);
  ASSERT_CUDA(Add(device_, kSize, 8, nullptr));
  std::thread opener([&] { gate.OpenLate(); });
  ASSERT_CUDA(cudaMemcpy(pageable_.data(), device_, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_THAT(pageable_, Each(8));
  opener.join();
}

TEST_F(MemoryTest, ACopyFromPageableMemoryReadsItBehindTheLegacyStream) {
  Gate gate(nullptr);
  const auto write = [](void* data) { *static_cast<int*>(data) = 9; };
  ASSERT_CUDA(cudaLaunchHostFunc(nullptr, write, pageable_.data()));
  std::thread opener([&] { gate.OpenLate(); });
  ASSERT_CUDA(cudaMemcpy(device_, pageable_.data(), kBytes, cudaMemcpyHostToDevice));
  opener.join();
  EXPECT_EQ(device_.Values()[0], 9);
}

TEST_F(MemoryTest, AMissingWaitShows) {
  // The copy is in no order with the kernel.
  Gate gate(stream_);
  const auto write = [](void* data) { *static_cast<int*>(data) = 9; };
  ASSERT_CUDA(cudaLaunchHostFunc(stream_, write, static_cast<int*>(pinned_)));
  ASSERT_CUDA(cudaMemcpy(device_, pinned_, 4, cudaMemcpyHostToDevice));
  gate.Open();
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_EQ(device_.Values()[0], 0);
}

TEST_F(MemoryTest, CopiesRows) {
  // 3 rows of 2 ints, 8 apart, to rows that are 4 apart.
  pageable_ = Numbers();
  ASSERT_CUDA(cudaMemcpy2D(device_, 16, pageable_.data(), 32, 8, 3, cudaMemcpyHostToDevice));
  const std::vector<int> values = device_.Values();
  EXPECT_THAT(std::vector<int>(values.begin(), values.begin() + 12),
              ElementsAre(1, 2, 0, 0, 9, 10, 0, 0, 17, 18, 0, 0));
  ASSERT_CUDA(cudaMemcpy2DAsync(other_pageable_.data(), 8, device_, 16, 8, 3,
                                cudaMemcpyDeviceToHost, stream_));
  EXPECT_THAT(std::vector<int>(other_pageable_.begin(), other_pageable_.begin() + 7),
              ElementsAre(1, 2, 9, 10, 17, 18, 0));
  EXPECT_EQ(cudaMemcpy2D(device_, 4, pageable_.data(), 32, 8, 3, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2D(device_, 128, pageable_.data(), 32, 8, 3, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("cudaMemcpy2D: 264 bytes")));
}

TEST_F(MemoryTest, CopiesBetweenDevices) {
  ASSERT_CUDA(cudaSetDevice(1));
  Ints second(kSize);
  ASSERT_CUDA(Add(second, kSize, 6, nullptr));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMemcpyPeer(device_, 0, second, 1, kBytes));
  EXPECT_THAT(device_.Values(), Each(6));
  ASSERT_CUDA(cudaMemcpyPeerAsync(second, 1, other_device_, 0, kBytes, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(second.Values(), Each(0));
  EXPECT_EQ(cudaMemcpyPeer(device_, 1, second, 1, kBytes), cudaErrorInvalidValue);
  EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("not from device 1 to device 1")));
}

TEST_F(MemoryTest, IsAllocatedAndFreedInTheOrderOfAStream) {
  void* data = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&data, kBytes, stream_));
  ASSERT_CUDA(cudaMemsetAsync(data, 0, kBytes, stream_));
  Gate gate(stream_);
  ASSERT_CUDA(Add(static_cast<int*>(data), kSize, 1, stream_));
  ASSERT_CUDA(cudaFreeAsync(data, stream_));
  gate.OpenLate();
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_THAT(TakeTexts(), ElementsAre(HasSubstr("which has been freed")));
  EXPECT_CUDA(cudaFreeAsync(nullptr, stream_));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaMallocAsync(&data, kBytes, stream_), cudaErrorNotSupported);
  ASSERT_CUDA(cudaStreamEndCapture(stream_, &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(MemoryTest, RefusesWhatDoesNotFit) {
  void* data = &stream_;
  EXPECT_EQ(cudaMalloc(&data, size_t{1} << 60), cudaErrorMemoryAllocation);
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(cudaMalloc(nullptr, 4), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMalloc(&data, 0));
  EXPECT_EQ(data, nullptr);
  EXPECT_CUDA(cudaFree(nullptr));
  EXPECT_CUDA(cudaFreeHost(nullptr));
}

TEST_F(MemoryTest, TellsWhatIsFree) {
  size_t before = 0, during = 0, after = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  EXPECT_LT(before, total);
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 1 << 20));
  ASSERT_CUDA(cudaMemGetInfo(&during, &total));
  EXPECT_LE(during, before - (1 << 20));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
}

TEST_F(MemoryTest, KnowsPointers) {
  ASSERT_CUDA(cudaSetDevice(1));
  Ints second(kSize);
  ASSERT_CUDA(cudaSetDevice(0));
  cudaPointerAttributes attributes = {};
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, second + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pinned_));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, pinned_);
  for (const void* unknown :
       {static_cast<const void*>(pageable_.data()), static_cast<const void*>(second + kSize)}) {
    ASSERT_CUDA(cudaPointerGetAttributes(&attributes, unknown));
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  }
}

TEST_F(MemoryTest, MarksWhatTheHostMustNotRelyOn) {
  int* data = nullptr;
  ASSERT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&data), kBytes, cudaHostAllocMapped));
  EXPECT_EQ(data[0], static_cast<int>(0xcdcdcdcd));
  void* device = nullptr;
  EXPECT_CUDA(cudaHostGetDevicePointer(&device, data, 0));
  EXPECT_EQ(device, data);
  ASSERT_CUDA(cudaFreeHost(data));
  EXPECT_EQ(data[0], static_cast<int>(0xcbcbcbcb));
}

TEST_F(MemoryTest, KernelsReachPageLockedMemory) {
  ASSERT_CUDA(Add(pinned_, kSize, 4, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_THAT(pinned_.Values(), Each(4));
}

TEST_F(MemoryTest, VariablesAreOfEachDevice) {
  const int value = 11;
  ASSERT_CUDA(cudaMemcpyToSymbol(scale_symbol, &value, sizeof(value), 0, cudaMemcpyHostToDevice));
  ASSERT_CUDA(ReadScale(device_, nullptr));
  ASSERT_CUDA(cudaSetDevice(1));
  Ints second(1);
  ASSERT_CUDA(ReadScale(second, nullptr));
  EXPECT_THAT(second.Values(), ElementsAre(7));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(device_.Values()[0], 11);
  int read = 0;
  ASSERT_CUDA(cudaMemcpyFromSymbol(&read, scale_symbol, sizeof(read), 0, cudaMemcpyDeviceToHost));
  EXPECT_EQ(read, 11);
  void* address = nullptr;
  ASSERT_CUDA(cudaGetSymbolAddress(&address, scale_symbol));
  ASSERT_CUDA(cudaMemcpy(&read, address, sizeof(read), cudaMemcpyDeviceToHost));
  EXPECT_EQ(read, 11);
  size_t bytes = 0;
  EXPECT_CUDA(cudaGetSymbolSize(&bytes, scale_symbol));
  EXPECT_EQ(bytes, sizeof(int));
  EXPECT_EQ(cudaMemcpyToSymbol(scale_symbol, &value, 4, 1, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetSymbolAddress(&address, &value), cudaErrorInvalidSymbol);
}

}  // namespace
}  // namespace brigade::emulator
