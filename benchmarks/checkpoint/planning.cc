// What many tensors and ranks cost a save before and after its data: the layout, every rank's
// pieces, the sums of all of them, and the manifest's text, written and read.

#include <time.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/checkpoint/fields.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_control.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

ABSL_FLAG(int, parameters, 10000, "of the model; AdamW has three tensors of each");
ABSL_FLAG(int, ranks, 64, "how many");
ABSL_FLAG(int, rounds, 5, "how often; medians count");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

using checkpoint::Layout;
using checkpoint::Manifest;
using checkpoint::Piece;

// Of this thread, which does all of it, without the time in which others had its processor.
double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

zero::ModelSpec Model(int parameters) {
  zero::ModelSpec model;
  for (int p = 0; p < parameters; ++p) {
    if (p % 100 == 0) model.push_back({.name = absl::StrCat("layer", p / 100)});
    model.back().parameters.push_back(
        {.name = absl::StrCat("layers.", p / 100, ".parameter", p % 100), .size = 4096 + p % 7});
  }
  return model;
}

class Planning {
 public:
  Planning(const zero::Plan& plan, int ranks) : plan_(plan), ranks_(ranks) {}

  // Each rank does so.
  absl::Status Lay() {
    BRIGADE_ASSIGN_OR_RETURN(layout_, Layout::Create(plan_.parameters(), /*arrays=*/3));
    return absl::OkStatus();
  }
  // Each rank does so for all.
  absl::Status Pieces() {
    pieces_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      pieces_.push_back(layout_.PiecesOf(plan_, rank));
    }
    return absl::OkStatus();
  }
  // As every rank makes it of the sums of all ranks' pieces.
  absl::Status MakeManifest() {
    manifest_ = {.state = checkpoint::StateFields(kernels::InitialStepState({})),
                 .options = checkpoint::OptionFields({}),
                 .parameters = checkpoint::ParameterFields(plan_.parameters()),
                 .file_bytes = Layout::kFileBytes};
    std::vector<uint32_t> tensors(layout_.tensors().size(), 0);
    for (const std::vector<Piece>& of_rank : pieces_) {
      for (const Piece& piece : of_rank) {
        uint32_t& sum = tensors[static_cast<size_t>(piece.tensor)];
        sum = device::CombineCrc32c(sum, 0x12345678, static_cast<uint64_t>(piece.bytes));
      }
    }
    for (const checkpoint::TensorFile& file : layout_.files()) {
      Manifest::File& entry = manifest_.files.emplace_back();
      entry.name = file.name;
      entry.bytes = file.bytes;
      entry.crc32c = device::Crc32c(file.header);
      for (int t = file.first; t < file.first + file.count; ++t) {
        const auto i = static_cast<size_t>(t);
        const checkpoint::Tensor& tensor = layout_.tensors()[i];
        entry.crc32c =
            device::CombineCrc32c(entry.crc32c, tensors[i], static_cast<uint64_t>(tensor.bytes));
        entry.tensors.push_back({plan_.parameter(tensor.parameter).spec.name, tensors[i]});
      }
    }
    return absl::OkStatus();
  }
  absl::Status Write() {
    BRIGADE_ASSIGN_OR_RETURN(text_, checkpoint::ManifestText(manifest_));
    return absl::OkStatus();
  }
  absl::Status Read() { return checkpoint::ParseManifest(text_).status(); }

  size_t tensors() const { return layout_.tensors().size(); }
  size_t manifest_bytes() const { return text_.size(); }

 private:
  const zero::Plan& plan_;
  const int ranks_;
  Layout layout_;
  std::vector<std::vector<Piece>> pieces_;
  Manifest manifest_;
  std::string text_;
};

absl::Status Main() {
  zero::PlanOptions options;
  options.ranks = absl::GetFlag(FLAGS_ranks);
  BRIGADE_ASSIGN_OR_RETURN(const zero::Plan plan,
                           zero::Plan::Create(Model(absl::GetFlag(FLAGS_parameters)), options));
  Planning planning(plan, options.ranks);
  const std::vector<std::pair<const char*, absl::Status (Planning::*)()>> parts = {
      {"layout", &Planning::Lay},
      {"pieces of all ranks", &Planning::Pieces},
      {"manifest", &Planning::MakeManifest},
      {"its text", &Planning::Write},
      {"reading it", &Planning::Read}};
  std::vector<Seconds> seconds(parts.size());
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const double begin = ThreadSeconds();
      BRIGADE_RETURN_IF_ERROR((planning.*parts[p].second)());
      seconds[p].push_back(ThreadSeconds() - begin);
    }
  }
  std::cout << absl::StrFormat("# %d parameters, %d tensors, %d ranks; manifest of %d bytes\n",
                               plan.parameters().size(), planning.tensors(), options.ranks,
                               planning.manifest_bytes());
  double sum = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    sum += Median(seconds[p]);
    std::cout << absl::StrFormat("%-32s %9.1f ms\n", parts[p].first, Median(seconds[p]) * 1e3);
  }
  std::cout << absl::StrFormat("%-32s %9.1f ms\n", "sum", sum * 1e3);
  Figures figures;
  figures.Add("seconds", sum);
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "planning", brigade::benchmarks::Main);
}
