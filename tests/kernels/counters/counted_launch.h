#ifndef BRIGADE_TESTS_KERNELS_COUNTERS_COUNTED_LAUNCH_H_
#define BRIGADE_TESTS_KERNELS_COUNTERS_COUNTED_LAUNCH_H_

// Runs the PTX of the project's kernels on the emulator, on arrays at any distance from a sector,
// and says what their accesses cost.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "brigade/emulator/ptx/launch.h"
#include "brigade/emulator/ptx/memory.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// A type as it stands in the name of a kernel, and in a table.
template <typename T>
struct TypeName;
#define BRIGADE_TYPE_NAME(T, kLong, kShort)         \
  template <>                                       \
  struct TypeName<T> {                              \
    static constexpr const char* kInKernel = kLong; \
    static constexpr const char* kInTable = kShort; \
  }
BRIGADE_TYPE_NAME(float, "float", "fp32");
BRIGADE_TYPE_NAME(precision::Half, "brigade::precision::Half", "fp16");
BRIGADE_TYPE_NAME(precision::BFloat16, "brigade::precision::BFloat16", "bf16");
BRIGADE_TYPE_NAME(NoCopy, "brigade::kernels::NoCopy", "none");
BRIGADE_TYPE_NAME(double, "double", "fp64");
BRIGADE_TYPE_NAME(int32_t, "int", "int32");
BRIGADE_TYPE_NAME(int64_t, "long", "int64");
BRIGADE_TYPE_NAME(uint8_t, "unsigned char", "uint8");
#undef BRIGADE_TYPE_NAME

// What a launch did, for `elements` elements.
struct Counted {
  int64_t elements = 0;
  // Of all loads and of all stores, those of 16 bytes, and those of 8 or 16.
  emulator::AccessCounts loads, wide_loads, group_loads;
  emulator::AccessCounts stores, wide_stores, group_stores;
  int64_t bank_conflicts = 0;
  int64_t instructions = 0;
  std::vector<std::string> findings;

  // Sectors over the fewest that hold as many bytes.
  double load_sectors() const { return Ratio(loads.sectors, loads.least_sectors); }
  double store_sectors() const { return Ratio(stores.sectors, stores.least_sectors); }
  // The bytes of an element that all accesses, those of 16 and those of 8 or 16 bytes move.
  double moved() const { return Ratio(loads.bytes + stores.bytes, elements); }
  double wide() const { return Ratio(wide_loads.bytes + wide_stores.bytes, elements); }
  double grouped() const { return Ratio(group_loads.bytes + group_stores.bytes, elements); }
  double instructions_per_element() const { return Ratio(instructions, elements); }

 private:
  static double Ratio(int64_t a, int64_t b) {
    return b == 0 ? 1.0 : static_cast<double>(a) / static_cast<double>(b);
  }
};

// A device with the kernels of one file.
class CountedKernels {
 public:
  // Those of kernels/<operation>.
  explicit CountedKernels(const std::string& operation);

  // `bytes` of memory that begin `shift` bytes past a sector, between bytes that must stay as they
  // are.
  void* Allocate(const std::string& name, int64_t bytes, int64_t shift = 0);
  void Write(const void* array, const void* from, int64_t bytes);
  void Read(const void* array, void* to, int64_t bytes) const;

  template <typename T>
  T* Upload(const std::string& name, const T* values, int64_t size, int64_t shift = 0) {
    const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
    void* const array = Allocate(name, bytes, shift * static_cast<int64_t>(sizeof(T)));
    Write(array, values, bytes);
    return static_cast<T*>(array);
  }
  template <typename T>
  std::vector<T> Download(const T* array, int64_t size) const {
    std::vector<T> values(static_cast<size_t>(size));
    Read(array, values.data(), size * static_cast<int64_t>(sizeof(T)));
    return values;
  }

  // Launches the kernel whose name, with its template arguments, is `name`; the arguments are of
  // its parameters' types. Findings are among what it returns.
  template <typename... Arguments>
  Counted Launch(const std::string& name, int64_t elements, int64_t blocks, int threads,
                 const Arguments&... arguments) {
    const emulator::Kernel& kernel = Find(name);
    std::vector<uint8_t> bytes(static_cast<size_t>(kernel.parameter_bytes));
    size_t next = 0;
    (Put(kernel, next++, &arguments, sizeof(arguments), bytes), ...);
    return Run(kernel, bytes, elements, blocks, threads);
  }

  // Whether all bytes beside the arrays are as they were.
  bool SurroundingsAreIntact() const;

 private:
  struct Array {
    uint64_t begin = 0;
    int64_t bytes = 0;
    uint64_t data = 0;
  };

  const emulator::Kernel& Find(const std::string& name) const;
  static void Put(const emulator::Kernel& kernel, size_t index, const void* from, size_t bytes,
                  std::vector<uint8_t>& to);
  Counted Run(const emulator::Kernel& kernel, const std::vector<uint8_t>& parameters,
              int64_t elements, int64_t blocks, int threads);

  std::unique_ptr<emulator::Memory> memory_;
  emulator::LoadedModule loaded_;
  std::vector<Array> arrays_;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_COUNTERS_COUNTED_LAUNCH_H_
