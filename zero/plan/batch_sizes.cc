#include "brigade/zero/plan/batch_sizes.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace brigade::zero {

absl::StatusOr<BatchSizes> CompleteBatchSizes(const BatchSizes& given, int ranks) {
  const auto wrong = [&](const char* why) {
    std::string sizes;
    for (const auto& [name, size] :
         {std::pair("train_batch_size", given.train_batch_size),
          std::pair("train_micro_batch_size_per_gpu", given.train_micro_batch_size_per_gpu),
          std::pair("gradient_accumulation_steps", given.gradient_accumulation_steps)}) {
      if (size != 0) absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", name, " ", size);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(sizes, sizes.empty() ? "" : " on ", ranks, " ranks: ", why));
  };
  BatchSizes sizes = given;
  int64_t& batch = sizes.train_batch_size;
  int64_t& micro = sizes.train_micro_batch_size_per_gpu;
  int64_t& steps = sizes.gradient_accumulation_steps;
  constexpr int64_t kMost = int64_t{1} << 20;  // of micro-batches, samples in one, and ranks
  if (ranks < 1 || ranks > kMost || batch < 0 || micro < 0 || steps < 0 || micro > kMost ||
      steps > kMost) {
    return wrong("a number is negative or too large");
  }
  if (batch == 0 && micro == 0) return wrong("the batch or the micro-batch must be given");
  if (steps == 0) steps = batch > 0 && micro > 0 ? batch / (micro * ranks) : 1;
  if (micro == 0) micro = batch / (steps * ranks);
  if (batch == 0) batch = micro * steps * ranks;
  if (micro < 1 || steps < 1 || batch != micro * steps * ranks) {
    return wrong("the batch is not micro-batch times accumulation steps times ranks");
  }
  if (micro > kMost || steps > kMost) return wrong("a number is negative or too large");
  return sizes;
}

}  // namespace brigade::zero
