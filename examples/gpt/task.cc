#include "brigade/examples/gpt/task.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/examples/gpt/rank_part.h"
#include "brigade/replicas/options.h"

namespace brigade::gpt {
namespace {

std::string SumOf(const std::string& text) { return absl::StrFormat("%08x", device::Crc32c(text)); }

}  // namespace

absl::StatusOr<std::unique_ptr<train::RankPart>> Task::CreatePart(
    const train::RankPlace& place) const {
  BRIGADE_RETURN_IF_ERROR(Validate(model_));
  BRIGADE_RETURN_IF_ERROR(CheckLength(corpus_, model_.context));
  BRIGADE_RETURN_IF_ERROR(CheckParts(model_, place.job.config));
  BRIGADE_RETURN_IF_ERROR(Validate(ShapeOf(model_, place.job.config, place.grid.coordinates())));
  return std::make_unique<RankPart>(RankPart::Parts{.job = place.job,
                                                    .model = model_,
                                                    .corpus = corpus_,
                                                    .grid = place.grid,
                                                    .context = place.context,
                                                    .compute = &place.compute,
                                                    .recorder = &place.recorder});
}

collectives::JobValues Task::Values(const train::Job& job) const {
  return {
      {"model",
       absl::StrCat(model_.layers, " layers of ", model_.heads, " heads, width ", model_.width,
                    ", context ", model_.context, ", ", model_.tensor_shards, " tensor shards",
                    model_.sequence_parallel ? ", sequence parallel" : "", ", products in ",
                    model_.tensor_pieces, " pieces",
                    job.config.sum_wire == parallel::SumWire::kModel ? ", sums in its type" : "",
                    ShapeOf(model_, job.config).is_ring() ? ", texts in a ring" : "")},
      {"data",
       absl::StrCat(corpus_.training.size(), " bytes to train on, ", corpus_.held_out.size(),
                    " held out (", collectives::DigestOf(corpus_.training), " ",
                    collectives::DigestOf(corpus_.held_out), ")")}};
}

// What else than model and options makes a training what it is.
checkpoint::Fields Task::Fields(const train::Job& job) const {
  checkpoint::Fields fields = {
      {"seed", absl::StrCat(job.seed)},
      {"heads", absl::StrCat(model_.heads)},
      {"train_batch_size", absl::StrCat(job.config.batch.train_batch_size)},
      {"corpus.training.bytes", absl::StrCat(corpus_.training.size())},
      {"corpus.training.crc32c", SumOf(corpus_.training)},
      {"corpus.held_out.bytes", absl::StrCat(corpus_.held_out.size())},
      {"corpus.held_out.crc32c", SumOf(corpus_.held_out)}};
  // Without dropout, what there was before there was any.
  if (job.config.dropout > 0) fields["dropout"] = absl::StrCat(job.config.dropout);
  // Likewise.
  if (model_.tensor_shards > 1) {
    fields["tensor_shards"] = absl::StrCat(model_.tensor_shards);
    fields["sequence_parallel"] = absl::StrCat(model_.sequence_parallel);
  }
  if (model_.tensor_pieces > 1) {
    fields["tensor_pieces"] = absl::StrCat(model_.tensor_pieces);
  }
  if (job.config.replicas > 0) fields["replicas"] = replicas::Describe(job.config.outer);
  return fields;
}

absl::StatusOr<zero::ModelSpec> Task::Spec(const train::Job& job, const parallel::Coordinates& at,
                                           device::Context& /*context*/) const {
  return SpecOf(model_, ShapeOf(model_, job.config, at).shards());
}

}  // namespace brigade::gpt
