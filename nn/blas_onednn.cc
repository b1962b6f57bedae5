#include "brigade/nn/blas_onednn.h"

#if defined(BRIGADE_HAS_ONEDNN) && defined(__x86_64__)
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include <iterator>
#include <optional>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#endif

#if defined(BRIGADE_HAS_ONEDNN) && defined(__x86_64__) && defined(__SANITIZE_THREAD__)
// ThreadSanitizer calls it for what it is not to report. oneDNN is not compiled for it: of how its
// threads wait for each other it sees a part, and reports the locks and memory that one makes and
// another uses, from the second product of a shape on. Weak, so that a program may have its own.
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() { return "called_from_lib:libdnnl.so\n"; }
#endif

namespace brigade::nn {

#if defined(BRIGADE_HAS_ONEDNN) && defined(__x86_64__)
namespace {

using precision::DType;

#define BRIGADE_TEXT_INNER(text) #text
#define BRIGADE_TEXT(text) BRIGADE_TEXT_INNER(text)
// Of the version whose declarations are compiled in: another one has other structures.
constexpr char kLibrary[] = "libdnnl.so." BRIGADE_TEXT(DNNL_VERSION_MAJOR);
#undef BRIGADE_TEXT
#undef BRIGADE_TEXT_INNER

// From version 3 on memory descriptors are objects, and operations have no descriptors.
#if DNNL_VERSION_MAJOR >= 3
#define BRIGADE_ONEDNN_OF_VERSION(X) \
  X(memory_desc_create_with_strides) \
  X(memory_desc_destroy)             \
  X(post_ops_append_eltwise)         \
  X(matmul_primitive_desc_create)
#else
#define BRIGADE_ONEDNN_OF_VERSION(X)  \
  X(memory_desc_init_by_strides)      \
  X(primitive_attr_set_output_scales) \
  X(matmul_desc_init)                 \
  X(primitive_desc_create)
#endif

#define BRIGADE_ONEDNN_FUNCTIONS(X)     \
  X(version)                            \
  X(get_effective_cpu_isa)              \
  X(sgemm)                              \
  X(engine_create)                      \
  X(stream_create)                      \
  X(stream_destroy)                     \
  X(memory_create)                      \
  X(memory_destroy)                     \
  X(memory_set_data_handle)             \
  X(memory_desc_get_size)               \
  X(primitive_attr_create)              \
  X(primitive_attr_destroy)             \
  X(primitive_attr_set_scratchpad_mode) \
  X(primitive_attr_set_post_ops)        \
  X(post_ops_create)                    \
  X(post_ops_destroy)                   \
  X(post_ops_append_sum)                \
  X(primitive_desc_destroy)             \
  X(primitive_desc_query)               \
  X(primitive_desc_query_md)            \
  X(primitive_create)                   \
  X(primitive_destroy)                  \
  X(primitive_execute)                  \
  BRIGADE_ONEDNN_OF_VERSION(X)

// The functions of the library, without their prefix.
struct Functions {
#define BRIGADE_DECLARE(name) decltype(&dnnl_##name) name = nullptr;
  BRIGADE_ONEDNN_FUNCTIONS(BRIGADE_DECLARE)
#undef BRIGADE_DECLARE
  // Of OpenMP, if oneDNN's threads are.
  void (*set_threads)(int) = nullptr;
  int (*max_threads)() = nullptr;

  // Nothing if the library is not to be had.
  static std::optional<Functions> Load() {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    Functions functions;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      all = all && function != nullptr;
    };
#define BRIGADE_FIND(name) find(functions.name, "dnnl_" #name);
    BRIGADE_ONEDNN_FUNCTIONS(BRIGADE_FIND)
#undef BRIGADE_FIND
    if (!all) return std::nullopt;
    switch (functions.version()->cpu_runtime) {
      case DNNL_RUNTIME_SEQ:
      // Without a pool that it is given it computes on the caller's thread.
      case DNNL_RUNTIME_THREADPOOL:
        return functions;
      case DNNL_RUNTIME_OMP:
        // Looked for in what the library has loaded: a process may have two of them.
        find(functions.set_threads, "omp_set_num_threads");
        find(functions.max_threads, "omp_get_max_threads");
        if (all) return functions;
        [[fallthrough]];
      default:
        return std::nullopt;
    }
  }
};

const Functions* LoadedFunctions() {
  static const std::optional<Functions> functions = Functions::Load();
  return functions.has_value() ? &*functions : nullptr;
}

// While it exists, oneDNN uses the calling thread alone. OpenMP has a number of threads for each of
// the program's own threads, which may be somebody else's.
class OneThread {
 public:
  explicit OneThread(const Functions& dnnl) : dnnl_(dnnl) {
    if (dnnl_.set_threads == nullptr) return;
    before_ = dnnl_.max_threads();
    if (before_ != 1) dnnl_.set_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) dnnl_.set_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const Functions& dnnl_;
  int before_ = 1;
};

// An object of oneDNN's, which a function of its destroys.
template <typename Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) (LoadedFunctions()->*kDestroy)(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owned<dnnl_stream_t, &Functions::stream_destroy>;
using Memory = Owned<dnnl_memory_t, &Functions::memory_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, &Functions::primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, &Functions::post_ops_destroy>;
using Description = Owned<dnnl_primitive_desc_t, &Functions::primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, &Functions::primitive_destroy>;

dnnl_data_type_t TypeOf(DType dtype) {
  return dtype == DType::kBFloat16 ? dnnl_bf16 : dtype == DType::kFloat16 ? dnnl_f16 : dnnl_f32;
}

// Where a matrix's elements lie. `strides` of a transposed one go down its columns.
class Layout {
 public:
  Layout(const Functions& dnnl, const Operand& operand, DType dtype, int64_t rows,
         int64_t columns) {
    const dnnl_dims_t sizes = {rows, columns};
    const dnnl_dims_t strides = {operand.transposed ? 1 : operand.leading,
                                 operand.transposed ? operand.leading : 1};
#if DNNL_VERSION_MAJOR >= 3
    ok_ = dnnl.memory_desc_create_with_strides(desc_.out(), 2, sizes, TypeOf(dtype), strides) ==
          dnnl_success;
#else
    ok_ =
        dnnl.memory_desc_init_by_strides(&desc_, 2, sizes, TypeOf(dtype), strides) == dnnl_success;
#endif
  }

  bool ok() const { return ok_; }
#if DNNL_VERSION_MAJOR >= 3
  const_dnnl_memory_desc_t get() const { return desc_.get(); }

 private:
  Owned<dnnl_memory_desc_t, &Functions::memory_desc_destroy> desc_;
#else
  const dnnl_memory_desc_t* get() const { return &desc_; }

 private:
  dnnl_memory_desc_t desc_;
#endif
  bool ok_;
};

class MatmulProduct final : public OneDnn::Product {
 public:
  explicit MatmulProduct(const Functions& dnnl) : dnnl_(dnnl) {}

  // Whether there is code for it, within so much scratch.
  bool Prepare(const GemmArguments& g, int64_t scratch_bytes, dnnl_engine_t engine) {
    const OneThread one_thread(dnnl_);
    Operand c = g.c;
    c.transposed = false;
    const Layout a_layout(dnnl_, g.a, g.dtype, g.m, g.k), b_layout(dnnl_, g.b, g.dtype, g.k, g.n),
        c_layout(dnnl_, c, g.type_of_c(), g.m, g.n);
    if (!a_layout.ok() || !b_layout.ok() || !c_layout.ok()) return false;
    Attributes attributes;
    if (!Describe(g, attributes)) return false;
    Description description;
#if DNNL_VERSION_MAJOR >= 3
    if (dnnl_.matmul_primitive_desc_create(description.out(), engine, a_layout.get(),
                                           b_layout.get(), nullptr, c_layout.get(),
                                           attributes.get()) != dnnl_success) {
      return false;
    }
#else
    dnnl_matmul_desc_t matmul;
    if (dnnl_.matmul_desc_init(&matmul, a_layout.get(), b_layout.get(), nullptr, c_layout.get()) !=
            dnnl_success ||
        dnnl_.primitive_desc_create(description.out(), &matmul, attributes.get(), engine,
                                    nullptr) != dnnl_success) {
      return false;
    }
#endif
    const char* implementation = "";
    if (dnnl_.primitive_desc_query(description.get(), dnnl_query_impl_info_str, 0,
                                   &implementation) != dnnl_success) {
      return false;
    }
    // oneDNN has a loop for whatever it has no vector code for.
    if (absl::StartsWith(implementation, "ref") || absl::StrContains(implementation, ":ref")) {
      return false;
    }
    const auto* const scratch =
        dnnl_.primitive_desc_query_md(description.get(), dnnl_query_scratchpad_md, 0);
    if (static_cast<int64_t>(dnnl_.memory_desc_get_size(scratch)) > scratch_bytes) return false;
    const auto memory = [&](Memory& made, auto* layout) {
      return dnnl_.memory_create(made.out(), layout, engine, DNNL_MEMORY_NONE) == dnnl_success;
    };
    return memory(a_, a_layout.get()) && memory(b_, b_layout.get()) && memory(c_, c_layout.get()) &&
           memory(scratch_, scratch) &&
           dnnl_.stream_create(stream_.out(), engine, dnnl_stream_default_flags) == dnnl_success &&
           dnnl_.primitive_create(primitive_.out(), description.get()) == dnnl_success;
  }

  absl::Status Run(const void* a, const void* b, void* c, void* scratch) override {
    const OneThread one_thread(dnnl_);
    const auto place = [&](const Memory& memory, const void* data) {
      return dnnl_.memory_set_data_handle(memory.get(), const_cast<void*>(data)) == dnnl_success;
    };
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, a_.get()},
                                         {DNNL_ARG_WEIGHTS, b_.get()},
                                         {DNNL_ARG_DST, c_.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
    if (!place(a_, a) || !place(b_, b) || !place(c_, c) || !place(scratch_, scratch)) {
      return absl::InternalError("gemm: oneDNN does not take the addresses");
    }
    // On the CPU it returns when it is done.
    const dnnl_status_t status = dnnl_.primitive_execute(
        primitive_.get(), stream_.get(), static_cast<int>(std::size(arguments)), arguments);
    if (status == dnnl_success) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("gemm: oneDNN failed with status ", status));
  }

 private:
  // The factor, what is added to c, and that scratch is given.
  bool Describe(const GemmArguments& g, Attributes& attributes) const {
    PostOps after;
    if (dnnl_.primitive_attr_create(attributes.out()) != dnnl_success ||
        dnnl_.post_ops_create(after.out()) != dnnl_success ||
        dnnl_.primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user) !=
            dnnl_success) {
      return false;
    }
    const float scale = static_cast<float>(g.scale);
#if DNNL_VERSION_MAJOR >= 3
    if (scale != 1 &&
        dnnl_.post_ops_append_eltwise(after.get(), dnnl_eltwise_linear, scale, 0) != dnnl_success) {
      return false;
    }
    if (g.accumulate &&
        dnnl_.post_ops_append_sum(after.get(), 1, 0, dnnl_data_type_undef) != dnnl_success) {
      return false;
    }
#else
    if (scale != 1 &&
        dnnl_.primitive_attr_set_output_scales(attributes.get(), 1, 0, &scale) != dnnl_success) {
      return false;
    }
    if (g.accumulate && dnnl_.post_ops_append_sum(after.get(), 1) != dnnl_success) return false;
#endif
    return dnnl_.primitive_attr_set_post_ops(attributes.get(), after.get()) == dnnl_success;
  }

  const Functions& dnnl_;
  Memory a_, b_, c_, scratch_;
  Stream stream_;
  Primitive primitive_;
};

class LoadedOneDnn final : public OneDnn {
 public:
  LoadedOneDnn(const Functions& dnnl, dnnl_engine_t engine) : dnnl_(dnnl), engine_(engine) {}

  // Its names of instruction sets are masks: each has the bits of those that it contains.
  bool Has(int instructions) const {
    return (static_cast<int>(dnnl_.get_effective_cpu_isa()) & instructions) == instructions;
  }

  bool Multiplies(DType dtype) const override {
    if (dtype == DType::kBFloat16) return Has(dnnl_cpu_isa_avx512_core_bf16);
#if DNNL_VERSION_MAJOR >= 3
    if (dtype == DType::kFloat16) return Has(dnnl_cpu_isa_avx512_core_fp16);
#endif
    return false;
  }

  std::unique_ptr<Product> Prepare(const GemmArguments& g, int64_t scratch_bytes) const override {
    auto product = std::make_unique<MatmulProduct>(dnnl_);
    if (!product->Prepare(g, scratch_bytes, engine_)) return nullptr;
    return product;
  }

  absl::Status Multiply(const GemmArguments& g, const float* a, int64_t a_leading, const float* b,
                        int64_t b_leading, float beta, float* c, int64_t c_leading) const override {
    const OneThread one_thread(dnnl_);
    const auto letter = [](const Operand& operand) { return operand.transposed ? 'T' : 'N'; };
    const dnnl_status_t status =
        dnnl_.sgemm(letter(g.a), letter(g.b), g.m, g.n, g.k, static_cast<float>(g.scale), a,
                    a_leading, b, b_leading, beta, c, c_leading);
    if (status == dnnl_success) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("gemm: oneDNN failed with status ", status));
  }

 private:
  const Functions& dnnl_;
  const dnnl_engine_t engine_;
};

// For the life of the process, as the library.
const OneDnn* Create() {
  const Functions* const dnnl = LoadedFunctions();
  dnnl_engine_t engine;
  if (dnnl == nullptr || dnnl->engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return nullptr;
  static const LoadedOneDnn loaded(*dnnl, engine);
  return loaded.Has(dnnl_cpu_isa_avx512_core) ? &loaded : nullptr;
}

}  // namespace

const OneDnn* OneDnn::Get() {
  static const OneDnn* const found = Create();
  return found;
}

#else

const OneDnn* OneDnn::Get() { return nullptr; }

#endif

}  // namespace brigade::nn
