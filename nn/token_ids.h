#ifndef BRIGADE_NN_TOKEN_IDS_H_
#define BRIGADE_NN_TOKEN_IDS_H_

#include <cstdint>

#include "brigade/nn/texts.h"
#include "brigade/precision/host_device.h"

namespace brigade::nn {

// Ids of a vocabulary of any size, [batch, context + 1] in device memory: row r = b * context + t
// of a layer sees token(r) and predicts the one behind it. Of int32, or the bytes of Texts, which
// may be of pieces.
//
// Ids with labels are [batch, context], perhaps with something else behind each text, and a row
// predicts its label instead. A row with the label kIgnoredLabel has no part in the loss. As the
// host knows how many count, a gradient is that of the sum of the losses, not of their mean.
//
// A window on a vocabulary sees some neighbours of it, numbered from 0, and the others as
// kElsewhere: another rank has their rows of a table. For embeddings; cross entropy takes none.
//
// The host does not see ids, so an id outside of the vocabulary is no error of a call. It is kNone:
// nothing is read or written where its row of a table would be, and what a layer gives for it is
// NaN. So are then the loss and gradients, and the optimizer skips the step as after an overflow.
class TokenIds {
 public:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kElsewhere = -2;
  // As a target.
  static constexpr int64_t kIgnored = -3;
  // As a label, by PyTorch's convention.
  static constexpr int32_t kIgnoredLabel = -100;

  TokenIds(const int32_t* ids, int64_t batch, int64_t context, int64_t vocabulary)
      : ids_(ids), batch_(batch), context_(context), vocabulary_(vocabulary), all_(vocabulary) {}
  // labels [batch, context]; null: no row has one. Texts of ids are `stride` numbers apart, at
  // least `context`; 0: context.
  static TokenIds WithLabels(const int32_t* ids, const int32_t* labels, int64_t batch,
                             int64_t context, int64_t vocabulary, int64_t stride = 0) {
    TokenIds labelled(ids, batch, context, vocabulary);
    labelled.labels_ = labels;
    labelled.has_labels_ = true;
    labelled.behind_ = stride == 0 ? 0 : stride - context;
    return labelled;
  }
  // A view of the same memory.
  TokenIds(const Texts& texts)  // NOLINT: texts are tokens.
      : bytes_(texts.bytes),
        batch_(texts.batch),
        context_(texts.context),
        pieces_(texts.pieces),
        vocabulary_(kVocabulary),
        all_(kVocabulary) {}

  // The same ids, seen from `size` ids of the vocabulary from `first` on.
  TokenIds Window(int64_t first, int64_t size) const {
    TokenIds window = *this;
    window.first_ += first;
    window.vocabulary_ = size;
    return window;
  }

  BRIGADE_INLINE int64_t rows() const { return batch_ * context_; }
  int64_t batch() const { return batch_; }
  BRIGADE_INLINE int64_t context() const { return context_; }
  // Of the window: the number of its ids, and the first one in the vocabulary.
  BRIGADE_INLINE int64_t vocabulary() const { return vocabulary_; }
  int64_t first() const { return first_; }
  int64_t whole_vocabulary() const { return all_; }

  BRIGADE_INLINE bool are_bytes() const { return bytes_ != nullptr; }
  const void* data() const { return are_bytes() ? bytes_ : static_cast<const void*>(ids_); }
  int64_t size_bytes() const {
    const int64_t bytes_of_id = are_bytes() ? 1 : sizeof(int32_t);
    const int64_t ids = batch_ * (context_ + behind_ * pieces_);
    return (has_labels_ && ids > 0 ? ids - behind_ : ids) * bytes_of_id;
  }
  const int32_t* labels() const { return labels_; }
  int64_t labels_bytes() const {
    return labels_ == nullptr ? 0 : rows() * static_cast<int64_t>(sizeof(int32_t));
  }

  BRIGADE_INLINE int64_t token(int64_t r) const { return At(Place(r)); }
  BRIGADE_INLINE int64_t target(int64_t r) const {
    if (!has_labels_) return At(Place(r) + 1);
    if (labels_ == nullptr || labels_[r] == kIgnoredLabel) return kIgnored;
    return Known(labels_[r]);
  }
  // By what the seed of a gradient of losses is divided.
  BRIGADE_INLINE int64_t divisor() const { return has_labels_ ? 1 : rows(); }

 private:
  BRIGADE_INLINE int64_t Place(int64_t r) const { return r + behind_ * (r / (context_ / pieces_)); }
  BRIGADE_INLINE int64_t At(int64_t i) const { return Known(are_bytes() ? bytes_[i] : ids_[i]); }
  BRIGADE_INLINE int64_t Known(int64_t id) const {
    if (id < 0 || id >= all_) return kNone;
    return id >= first_ && id - first_ < vocabulary_ ? id - first_ : kElsewhere;
  }

  const uint8_t* bytes_ = nullptr;
  const int32_t* ids_ = nullptr;
  const int32_t* labels_ = nullptr;
  int64_t batch_;
  int64_t context_;
  int64_t pieces_ = 1;
  bool has_labels_ = false;
  // Ids behind each piece, which are targets alone; with labels, numbers behind each text that are
  // no ids.
  int64_t behind_ = 1;
  // The window, and all of which it is a part.
  int64_t first_ = 0;
  int64_t vocabulary_;
  int64_t all_;
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TOKEN_IDS_H_
