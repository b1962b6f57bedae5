#include "brigade/checkpoint/loader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "brigade/checkpoint/check_part.h"
#include "brigade/checkpoint/checkpoint_folder.h"
#include "brigade/checkpoint/checkpoint_reader.h"
#include "brigade/checkpoint/durable_file.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/checkpoint/manifest.h"
#include "brigade/checkpoint/tensor_sums.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {
namespace {

using collectives::AgreeOnStatus;
using device::Quoted;

// Bytes that are read, and summed while the processor's cache has them, before the disk is told
// again what comes.
constexpr int64_t kReadAtOnce = int64_t{256} << 10;
// How far ahead the disk is told what comes, and of how much at once.
constexpr int64_t kReadAhead = int64_t{16} << 20;
constexpr int64_t kToldAtOnce = int64_t{2} << 20;

// The field of this name, and those of what bears it.
Fields Only(const Fields& fields, const std::string& name) {
  Fields only;
  for (const auto& [each, value] : fields) {
    if (each == name || absl::StartsWith(each, name + ".")) only[each] = value;
  }
  return only;
}

// One rank's part of a load.
class RankLoad {
 public:
  RankLoad(const std::string& folder, zero::ZeroOptimizer& zero, const ModelPart& part, int rank,
           int ranks, device::SystemCalls& system)
      : folder_(folder), zero_(zero), part_(part), rank_(rank), ranks_(ranks), system_(system) {}

  // Reads the manifest and compares: nothing is changed. `model`: all its parameters.
  absl::Status Prepare(absl::Span<const zero::Parameter> model, const Fields& training,
                       const LoadOptions& options);

  uint32_t manifest_sum() const { return reader_->manifest_sum(); }
  const kernels::StepState& state() const { return state_; }
  // The checkpoint's learning rates, and those that were there before.
  absl::Status SetRates() { return SetRates(rates_); }
  void RestoreRates() { SetRates(rates_before_).IgnoreError(); }
  // For ZeroOptimizer::LoadState.
  absl::Status Read(int bucket, int array, zero::ElementRange range, void* values);
  // Of the tensors, as they were read by all ranks.
  absl::StatusOr<std::vector<uint32_t>> GatherSums(collectives::Communicator& communicator) {
    return sums_->Gather(communicator);
  }
  // Whether these are what the manifest says.
  absl::Status CheckSums(const std::vector<uint32_t>& tensors) const;

 private:
  absl::Status Compare(const Fields& training, const LoadOptions& options);
  void KeepRatesThatDiffer(const Fields& options_here);
  absl::Status CheckFiles();
  absl::Status SetRates(const std::vector<Rate>& rates);
  void BeginToReadAhead();

  const std::string folder_;
  zero::ZeroOptimizer& zero_;
  const ModelPart& part_;
  const int rank_;
  const int ranks_;
  device::SystemCalls& system_;
  std::optional<CheckpointReader> reader_;
  // Of the whole model.
  Layout layout_;
  kernels::StepState state_ = {};
  std::vector<Rate> rates_, rates_before_;
  // What this rank's slices consist of, also what another group saves.
  std::vector<Piece> pieces_;
  // Of what this rank saves.
  std::optional<TensorSums> sums_;
  // The pieces of an array of a bucket, ascending: both as they are read.
  std::map<std::pair<int, int>, std::vector<size_t>> pieces_of_;
  std::vector<size_t> in_order_;
  // Bytes of the pieces: those that were read; those of which the disk was told, and where of these
  // the last one lies, in in_order_ and in its piece.
  int64_t read_ = 0;
  int64_t told_ = 0;
  size_t told_piece_ = 0;
  int64_t told_offset_ = 0;
};

absl::Status RankLoad::Prepare(absl::Span<const zero::Parameter> model, const Fields& training,
                               const LoadOptions& options) {
  BRIGADE_ASSIGN_OR_RETURN(auto reader, CheckpointReader::Open(system_, folder_));
  reader_.emplace(std::move(reader));
  BRIGADE_ASSIGN_OR_RETURN(
      layout_, Layout::Create(model, zero_.state_arrays(), reader_->manifest().file_bytes,
                              zero_.options().optimizer.kind));
  if (const absl::Status same = Compare(training, options); !same.ok()) {
    return absl::Status(same.code(), absl::StrCat(PrintablePath(folder_), ": ", same.message()));
  }
  pieces_ = layout_.PiecesOf(zero_.plan(), zero_.rank(), part_, zero_.shard_group());
  sums_.emplace(layout_);
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(pieces_[p].tensor)];
    pieces_of_[{pieces_[p].bucket, tensor.array}].push_back(p);
  }
  for (auto& of_array : pieces_of_) {
    std::sort(of_array.second.begin(), of_array.second.end(),
              [&](size_t a, size_t b) { return pieces_[a].slice.begin < pieces_[b].slice.begin; });
    in_order_.insert(in_order_.end(), of_array.second.begin(), of_array.second.end());
  }
  return absl::OkStatus();
}

absl::Status RankLoad::Compare(const Fields& training, const LoadOptions& options) {
  const Manifest& manifest = reader_->manifest();
  const Fields options_here = OptionFields(zero_.options());
  BRIGADE_RETURN_IF_ERROR(CheckSame(manifest.options, options_here, options.may_differ));
  BRIGADE_RETURN_IF_ERROR(CheckSame(manifest.parameters, ParameterFields(layout_.parameters())));
  BRIGADE_RETURN_IF_ERROR(CheckSame(manifest.training, training, options.may_differ));
  BRIGADE_ASSIGN_OR_RETURN(state_, StateOf(manifest.state));
  BRIGADE_ASSIGN_OR_RETURN(rates_, RatesOf(manifest.rates));
  const size_t groups = zero_.options().optimizer.groups.size();
  if (rates_.size() != groups) {
    return absl::InvalidArgumentError(absl::StrCat("the checkpoint has rates of ", rates_.size(),
                                                   " groups, the optimizer ", groups));
  }
  KeepRatesThatDiffer(options_here);
  for (size_t g = 0; g < groups; ++g) {
    const optim::ParameterGroup& group = zero_.controller().group(static_cast<int>(g));
    rates_before_.push_back({group.lr, group.schedule});
  }
  return CheckFiles();
}

// Rates and schedules whose options are others than the checkpoint's, which may differ: those here
// hold.
void RankLoad::KeepRatesThatDiffer(const Fields& options_here) {
  const auto differs = [&](const std::string& name) {
    return !CheckSame(Only(reader_->manifest().options, name), Only(options_here, name)).ok();
  };
  for (size_t g = 0; g < rates_.size(); ++g) {
    const optim::ParameterGroup& group = zero_.options().optimizer.groups[g];
    if (differs(absl::StrCat("groups[", g, "].lr"))) rates_[g].lr = group.lr;
    if (differs(absl::StrCat("groups[", g, "].schedule"))) rates_[g].schedule = group.schedule;
  }
}

// The files are those of the layout, each with its header: of some each rank looks; of piece files,
// where only rank 0 needs to have the headers, rank 0 does.
absl::Status RankLoad::CheckFiles() {
  const std::vector<Manifest::File>& files = reader_->manifest().files;
  // The index is the last.
  if (files.size() != layout_.files().size() + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint has ", files.size(), " files, this model ", layout_.files().size() + 1));
  }
  for (size_t f = 0; f < layout_.files().size(); ++f) {
    const TensorFile& wanted = layout_.files()[f];
    const Manifest::File& file = files[f];
    if (file.name != wanted.name || file.bytes != wanted.bytes ||
        file.tensors.size() != static_cast<size_t>(wanted.count)) {
      return absl::InvalidArgumentError(
          absl::StrCat("file ", f, " is ", Quoted(file.name), " with ", file.tensors.size(),
                       " tensors and ", file.bytes, " bytes in the checkpoint, ", wanted.name,
                       " with ", wanted.count, " and ", wanted.bytes, " here"));
    }
    for (size_t t = 0; t < file.tensors.size(); ++t) {
      const Tensor& tensor = layout_.tensors()[static_cast<size_t>(wanted.first) + t];
      const std::string& name =
          layout_.parameters()[static_cast<size_t>(tensor.parameter)].spec.name;
      if (file.tensors[t].name == name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", t, " of ", file.name, " is ", Quoted(file.tensors[t].name),
                       " in the checkpoint, ", Quoted(name), " here"));
    }
    const size_t looks = reader_->manifest().pieces.empty() ? f % static_cast<size_t>(ranks_) : 0;
    if (static_cast<int>(looks) != rank_) continue;
    std::string header(wanted.header.size(), '\0');
    BRIGADE_RETURN_IF_ERROR(
        reader_->Read(static_cast<int>(f), 0, static_cast<int64_t>(header.size()), header.data()));
    if (header != wanted.header) {
      return absl::DataLossError(
          absl::StrCat(file.name, " has the header of other tensors, or a damaged one"));
    }
  }
  return absl::OkStatus();
}

absl::Status RankLoad::SetRates(const std::vector<Rate>& rates) {
  for (size_t g = 0; g < rates.size(); ++g) {
    BRIGADE_RETURN_IF_ERROR(zero_.controller().SetSchedule(static_cast<int>(g), rates[g].lr,
                                                           rates[g].schedule, zero_.step_stream()));
  }
  return absl::OkStatus();
}

absl::Status RankLoad::Read(int bucket, int array, zero::ElementRange range, void* values) {
  const int64_t width = precision::SizeOf(zero_.StateArrayType(bucket, array).dtype);
  auto* const to = static_cast<char*>(values);
  // Up to here everything is written; what belongs to no parameter is zero.
  char* written = to;
  const auto skip_to = [&](char* next) {
    std::memset(written, 0, static_cast<size_t>(next - written));
    written = next;
  };
  const std::vector<size_t>& pieces = pieces_of_[{bucket, array}];
  auto next = std::partition_point(pieces.begin(), pieces.end(), [&](size_t p) {
    return pieces_[p].slice.begin + pieces_[p].slice.size <= range.begin;
  });
  for (; next != pieces.end() && pieces_[*next].slice.begin < range.begin + range.size; ++next) {
    const Piece& piece = pieces_[*next];
    const int64_t begin = std::max(piece.slice.begin, range.begin);
    const int64_t end = std::min(piece.slice.begin + piece.slice.size, range.begin + range.size);
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t in_tensor = piece.offset + (begin - piece.slice.begin) * width;
    char* const part = to + (begin - range.begin) * width;
    const int64_t bytes = (end - begin) * width;
    skip_to(part);
    for (int64_t done = 0; done < bytes; done += kReadAtOnce) {
      const int64_t count = std::min(kReadAtOnce, bytes - done);
      BeginToReadAhead();
      BRIGADE_RETURN_IF_ERROR(
          reader_->Read(tensor.file, tensor.offset + in_tensor + done, count, part + done));
      read_ += count;
      if (!piece.is_saved) continue;
      sums_->Add(piece.tensor, in_tensor + done, {part + done, static_cast<size_t>(count)});
    }
    written = part + bytes;
  }
  skip_to(to + range.size * width);
  return absl::OkStatus();
}

// The order goes from file to file, and not forward in each: what comes next only we know.
void RankLoad::BeginToReadAhead() {
  while (told_piece_ < in_order_.size() && told_ < read_ + kReadAhead) {
    const Piece& piece = pieces_[in_order_[told_piece_]];
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t count = std::min(kToldAtOnce, piece.bytes - told_offset_);
    reader_->BeginToRead(tensor.file, tensor.offset + piece.offset + told_offset_, count);
    told_ += count;
    told_offset_ += count;
    if (told_offset_ < piece.bytes) continue;
    ++told_piece_;
    told_offset_ = 0;
  }
}

absl::Status RankLoad::CheckSums(const std::vector<uint32_t>& tensors) const {
  for (size_t t = 0; t < tensors.size(); ++t) {
    const auto f = static_cast<size_t>(layout_.tensors()[t].file);
    const Manifest::File& file = reader_->manifest().files[f];
    const Manifest::Tensor& saved = file.tensors[t - static_cast<size_t>(layout_.files()[f].first)];
    if (tensors[t] == saved.crc32c) continue;
    return absl::DataLossError(SumError(absl::StrCat(PrintablePath(folder_), "/", file.name,
                                                     " is damaged: tensor ", Quoted(saved.name)),
                                        tensors[t], saved.crc32c));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> FindLatest(const std::string& root,
                                                  collectives::Communicator& communicator,
                                                  int64_t before, device::SystemCalls& system) {
  const absl::StatusOr<std::vector<int64_t>> found = ListCheckpoints(system, root);
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(found.status(), communicator));
  // The newest before the oldest of all ranks' newest, and so on, until it is that of all.
  bool is_any = false;
  while (true) {
    const auto end = std::lower_bound(found->begin(), found->end(), before);
    const int64_t mine = end == found->begin() ? -1 : *(end - 1);
    BRIGADE_ASSIGN_OR_RETURN(const auto all, communicator.AllGatherHost({mine}));
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    is_any = is_any || *most >= 0;
    if (*least < 0) {
      if (!is_any) return std::optional<int64_t>();
      return absl::NotFoundError(absl::StrCat("no checkpoint in ", PrintablePath(root),
                                              " that all ranks have: rank ", least - all.begin(),
                                              " has no other, or none"));
    }
    if (*least == *most) return std::optional<int64_t>(*least);
    before = *least + 1;
  }
}

absl::StatusOr<std::optional<int64_t>> SetAsideLater(const std::string& root, int64_t step,
                                                     collectives::Communicator& communicator,
                                                     device::SystemCalls& system) {
  int64_t highest = -1;
  const auto set_aside = [&]() -> absl::Status {
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> found, ListCheckpoints(system, root));
    for (const int64_t each : found) {
      if (each <= step) continue;
      const absl::Status status = SetAside(system, root, each);
      // Another rank, which sees the same folder, was the first.
      if (!absl::IsNotFound(status)) BRIGADE_RETURN_IF_ERROR(status);
      highest = each;
    }
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(set_aside(), communicator));
  BRIGADE_ASSIGN_OR_RETURN(const auto all, communicator.AllGatherHost({highest}));
  highest = *std::max_element(all.begin(), all.end());
  return highest < 0 ? std::nullopt : std::optional(highest);
}

absl::StatusOr<kernels::StepState> Load(const std::string& folder, const Fields& training,
                                        zero::ZeroOptimizer& zero,
                                        collectives::Communicator& communicator,
                                        const LoadOptions& options, device::SystemCalls& system,
                                        const ModelPart& part) {
  BRIGADE_ASSIGN_OR_RETURN(const auto model, CheckPart(part, zero, communicator));
  RankLoad load(folder, zero, part, communicator.rank(), communicator.size(), system);
  BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(load.Prepare(model, training, options), communicator));
  BRIGADE_ASSIGN_OR_RETURN(const auto manifests,
                           communicator.AllGatherHost({int64_t{load.manifest_sum()}}));
  for (size_t rank = 1; rank < manifests.size(); ++rank) {
    if (manifests[rank] == manifests[0]) continue;
    return absl::InvalidArgumentError(absl::StrCat(PrintablePath(folder), ": rank ", rank,
                                                   " sees another checkpoint than rank 0"));
  }
  absl::Status loaded = AgreeOnStatus(load.SetRates(), communicator);
  if (loaded.ok()) {
    loaded = zero.LoadState(load.state(),
                            [&](int bucket, int array, zero::ElementRange range, void* values) {
                              return load.Read(bucket, array, range, values);
                            });
  }
  if (!loaded.ok()) {
    load.RestoreRates();
    return loaded;
  }
  BRIGADE_ASSIGN_OR_RETURN(const auto tensors, load.GatherSums(communicator));
  BRIGADE_RETURN_IF_ERROR(load.CheckSums(tensors));
  return load.state();
}

}  // namespace brigade::checkpoint
