// Attention beside what multiply-adds reach, and beside plain attention, which keeps a matrix of
// all scores.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/nn/peak.h"
#include "brigade/benchmarks/nn/plain_attention.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/random.h"
#include "brigade/precision/dtype_names.h"

ABSL_FLAG(std::vector<std::string>, cases,
          (std::vector<std::string>{"fp32:1024:8:64", "bf16:1024:8:64", "fp32:2048:8:64",
                                    "bf16:2048:8:64"}),
          "type:context:heads:head width of each, where the type is fp32, fp16 or bf16");
ABSL_FLAG(int, threads, static_cast<int>(std::thread::hardware_concurrency()), "compute threads");
ABSL_FLAG(int, rounds, 5, "how often everything is timed");
ABSL_FLAG(
    bool, turns, false,
    "time what each line of the standard input says, PASS type:context:heads:width, and print "
    "seconds; PASS is forward, backward, plain_forward, plain_backward, peak_forward or "
    "peak_backward");

namespace brigade::benchmarks {
namespace {

using precision::DType;

absl::StatusOr<nn::AttentionShape> Parse(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ':');
  const auto dtype = precision::ParseTrainingFormat(words[0]);
  nn::AttentionShape shape = {DType::kFloat32, 1, 0, 0, 0};
  int64_t width = 0;
  if (words.size() != 4 || !dtype.has_value() || !absl::SimpleAtoi(words[1], &shape.context) ||
      !absl::SimpleAtoi(words[2], &shape.heads) || !absl::SimpleAtoi(words[3], &width)) {
    return absl::InvalidArgumentError(absl::StrCat(
        text, " is not a case; they are like bf16:2048:8:64, and types are fp32, fp16 and bf16"));
  }
  shape.dtype = *dtype;
  shape.width = shape.heads * width;
  return shape;
}

// The arrays of a case, and what can be timed on them.
class Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const nn::AttentionShape& shape,
                                                      device::Context& context, bool with_plain) {
    std::unique_ptr<Case> made(new Case(shape));
    const int64_t size = precision::SizeOf(shape.dtype), row = shape.width * size;
    const int64_t scores = with_plain ? shape.statistics() * shape.context * size : 0;
    const std::pair<device::Buffer*, int64_t> buffers[] = {
        {&made->qkv_, shape.rows() * 3 * row},
        {&made->out_, shape.rows() * row},
        {&made->dout_, shape.rows() * row},
        {&made->dqkv_, shape.rows() * 3 * row},
        {&made->log_sum_exp_, shape.statistics() * static_cast<int64_t>(sizeof(float))},
        {&made->workspace_, nn::AttentionWorkspaceBytes(shape, context.device())},
        {&made->probabilities_, scores},
        {&made->dscores_, scores}};
    for (const auto& [buffer, bytes] : buffers) {
      BRIGADE_ASSIGN_OR_RETURN(*buffer,
                               context.Allocate(bytes, device::Purpose::kScratch, "benchmark"));
    }
    precision::VisitFloat(shape.dtype, [&](auto tag) {
      using T = decltype(tag);
      nn::Random random(1, 0);
      for (device::Buffer* const buffer : {&made->qkv_, &made->dout_}) {
        for (T& value : buffer->as<T>()) value = T(static_cast<float>(4 * random.Uniform() - 2));
      }
    });
    const int64_t t = shape.context, width = shape.head_width();
    BRIGADE_ASSIGN_OR_RETURN(
        made->blas_,
        nn::Blas::Create(
            context,
            with_plain ? nn::Blas::WorkspaceBytes(shape.dtype, t, std::max(t, width), t) : 0));
    return made;
  }

  const nn::AttentionShape& shape() const { return shape_; }

  // Of the pairs of positions of which one sees the other: a forward pass multiplies with keys and
  // values; a backward pass makes five such products.
  double Operations(bool backward) const {
    const auto context = static_cast<double>(shape_.context);
    return (backward ? 10 : 4) * static_cast<double>(shape_.batch * shape_.width) * context *
           (context + 1) / 2;
  }

  absl::Status Enqueue(const std::string& pass, device::Stream& stream) {
    const void* const qkv = qkv_.data();
    if (pass == "forward") {
      return nn::Attention(shape_, qkv, out_.data(), log_sum_exp_.data(), stream);
    }
    if (pass == "backward") {
      return nn::AttentionBackward(shape_, qkv, out_.data(), log_sum_exp_.data(), dout_.data(),
                                   workspace_.data(), dqkv_.data(), stream);
    }
    if (pass == "plain_forward") {
      return PlainAttention(shape_, qkv, probabilities_.data(), out_.data(), *blas_, stream);
    }
    if (pass == "plain_backward") {
      return PlainAttentionBackward(shape_, qkv, probabilities_.data(), dout_.data(),
                                    dscores_.data(), dqkv_.data(), *blas_, stream);
    }
    if (pass == "peak_forward" || pass == "peak_backward") {
      return EnqueuePeak(shape_.dtype, Operations(pass == "peak_backward"),
                         absl::GetFlag(FLAGS_threads), stream);
    }
    return absl::InvalidArgumentError(absl::StrCat("there is no pass ", pass));
  }

 private:
  explicit Case(const nn::AttentionShape& shape) : shape_(shape) {}

  const nn::AttentionShape shape_;
  device::Buffer qkv_, out_, dout_, dqkv_, log_sum_exp_, workspace_, probabilities_, dscores_;
  std::unique_ptr<nn::Blas> blas_;
};

absl::Status PrintTable(device::Context& context, device::Stream& stream) {
  std::cout << absl::StrFormat("# %d threads\n%-18s %-9s %9s %9s %8s %11s %8s\n",
                               absl::GetFlag(FLAGS_threads), "case", "pass", "ms", "GFLOP/s",
                               "ceiling", "of_ceiling", "of_plain");
  for (const std::string& text : absl::GetFlag(FLAGS_cases)) {
    BRIGADE_ASSIGN_OR_RETURN(const nn::AttentionShape shape, Parse(text));
    BRIGADE_ASSIGN_OR_RETURN(const auto made, Case::Create(shape, context, true));
    for (const bool backward : {false, true}) {
      const std::string pass = backward ? "backward" : "forward";
      std::vector<Work> contestants;
      for (const std::string& name :
           {pass, absl::StrCat("peak_", pass), absl::StrCat("plain_", pass)}) {
        contestants.push_back(
            [&made, name](device::Stream& to) { return made->Enqueue(name, to); });
      }
      BRIGADE_ASSIGN_OR_RETURN(const std::vector<Seconds> seconds,
                               Interleave(contestants, 1, absl::GetFlag(FLAGS_rounds), stream));
      const double giga = made->Operations(backward) * 1e-9;
      std::cout << absl::StrFormat("%-18s %-9s %9.2f %9.1f %8.1f %11.3f %8.2f\n", text, pass,
                                   Median(seconds[0]) * 1e3, giga / Median(seconds[0]),
                                   giga / Median(seconds[1]), MedianRatio(seconds[1], seconds[0]),
                                   MedianRatio(seconds[2], seconds[0]));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeTurns(device::Context& context, device::Stream& stream) {
  std::unique_ptr<Case> made;
  std::string line, text;
  while (std::getline(std::cin, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 2) return absl::InvalidArgumentError(absl::StrCat("not a turn: ", line));
    if (words[1] != text) {
      text = words[1];
      BRIGADE_ASSIGN_OR_RETURN(const nn::AttentionShape shape, Parse(text));
      BRIGADE_ASSIGN_OR_RETURN(made, Case::Create(shape, context, true));
    }
    const Work work = [&](device::Stream& to) { return made->Enqueue(words[0], to); };
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<Seconds> seconds,
                             Interleave({work}, 1, absl::GetFlag(FLAGS_rounds), stream));
    std::cout << absl::StrFormat("%.9f\n", Median(seconds[0])) << std::flush;
  }
  return absl::OkStatus();
}

absl::Status Main() {
  BRIGADE_ASSIGN_OR_RETURN(
      const auto context,
      device::Context::Create(
          {.device = device::Cpu(), .compute_threads = absl::GetFlag(FLAGS_threads)}));
  BRIGADE_ASSIGN_OR_RETURN(const auto stream, context->CreateStream("compute"));
  return absl::GetFlag(FLAGS_turns) ? TakeTurns(*context, *stream) : PrintTable(*context, *stream);
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "attention", brigade::benchmarks::Main);
}
