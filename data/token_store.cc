#include "brigade/data/token_store.h"

#include <cstring>

namespace brigade::data {
namespace {

template <typename T>
void Write(absl::Span<const int32_t> ids, uint8_t* to) {
  for (const int32_t id : ids) {
    const T narrow = static_cast<T>(id);
    std::memcpy(to, &narrow, sizeof(T));
    to += sizeof(T);
  }
}

template <typename T>
void ReadAs(const uint8_t* from, absl::Span<int32_t> ids) {
  for (int32_t& id : ids) {
    T narrow;
    std::memcpy(&narrow, from, sizeof(T));
    id = static_cast<int32_t>(narrow);
    from += sizeof(T);
  }
}

}  // namespace

void TokenStore::Append(absl::Span<const int32_t> ids) {
  const size_t end = bytes_.size();
  bytes_.resize(end + ids.size() * width_);
  uint8_t* const to = bytes_.data() + end;
  if (width_ == 1) return Write<uint8_t>(ids, to);
  if (width_ == 2) return Write<uint16_t>(ids, to);
  Write<int32_t>(ids, to);
}

void TokenStore::Read(int64_t begin, absl::Span<int32_t> ids) const {
  const uint8_t* const from = bytes_.data() + static_cast<size_t>(begin) * width_;
  if (width_ == 1) return ReadAs<uint8_t>(from, ids);
  if (width_ == 2) return ReadAs<uint16_t>(from, ids);
  ReadAs<int32_t>(from, ids);
}

}  // namespace brigade::data
