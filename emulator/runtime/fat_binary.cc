#include "brigade/emulator/runtime/fat_binary.h"

#include <fatbinary_section.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace brigade::emulator {
namespace {

constexpr uint32_t kMagic = 0xba55ed50;

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  // Of the entries behind it.
  uint64_t bytes;
};

struct Entry {
  static constexpr uint16_t kPtx = 1;
  // Of compressed entries: by LZ4, by zstd.
  static constexpr uint64_t kCompressed = 0x2000 | 0x8000;

  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  // Of what is behind the entry's header.
  uint64_t bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t minor;
  uint16_t major;
  // 90 for sm_90.
  uint32_t architecture;
  uint32_t name_offset;
  uint32_t name_bytes;
  uint64_t flags;
};
static_assert(sizeof(Header) == 16 && sizeof(Entry) == 48);

}  // namespace

absl::StatusOr<std::string> PtxOf(const void* wrapper) {
  const auto* const text = static_cast<const __fatBinC_Wrapper_t*>(wrapper);
  Header header;
  if (text == nullptr || text->magic != FATBINC_MAGIC || text->data == nullptr) {
    return absl::InvalidArgumentError("emulator: what is registered is no fat binary");
  }
  const auto* at = reinterpret_cast<const char*>(text->data);
  std::memcpy(&header, at, sizeof(header));
  if (header.magic != kMagic || header.header_bytes != sizeof(header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulator: a fat binary that begins with ", absl::Hex(header.magic)));
  }
  at += header.header_bytes;
  const char* const end = at + header.bytes;
  std::string ptx;
  uint32_t architecture = 0;
  bool is_compressed = false;
  while (end - at >= static_cast<ptrdiff_t>(sizeof(Entry))) {
    Entry entry;
    std::memcpy(&entry, at, sizeof(entry));
    const auto left = static_cast<uint64_t>(end - at);
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
        entry.bytes > left - entry.header_bytes) {
      return absl::InvalidArgumentError("emulator: a fat binary whose entries leave it");
    }
    if (entry.kind == Entry::kPtx && entry.architecture >= architecture) {
      architecture = entry.architecture;
      is_compressed = (entry.flags & Entry::kCompressed) != 0;
      const char* const begin = at + entry.header_bytes;
      ptx.assign(begin, strnlen(begin, entry.bytes));
    }
    at += entry.header_bytes + entry.bytes;
  }
  if (architecture == 0) {
    return absl::FailedPreconditionError(
        "emulator: no PTX in the fat binary; compile with "
        "-gencode arch=compute_90,code=compute_90");
  }
  if (is_compressed) {
    return absl::FailedPreconditionError(
        "emulator: the PTX in the fat binary is compressed; compile with --no-compress");
  }
  return ptx;
}

}  // namespace brigade::emulator
