#include "brigade/device/file/store_table.h"

#include <fcntl.h>

#include <cstddef>
#include <cstring>

#include "brigade/device/file/aligned_memory.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/device/file/system_calls.h"

namespace brigade::device::internal {
namespace {

// In the machine's own order of bytes: the file stays on its machine.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t layout_sum;
  int64_t commits;
  int64_t chunks;
  // Of all bytes of the copy behind this header, and of the header with 0 here.
  uint32_t sum;
  uint32_t boot_sum;
};
static_assert(sizeof(Header) == 40);

struct Entry {
  uint32_t sum;
  // -1, 0, 1.
  int16_t slot;
  // 1 or 0.
  uint16_t has_sum;
};
static_assert(sizeof(Entry) == 8);

constexpr char kMagic[8] = {'B', 'r', 'i', 'g', 'F', 'i', 'l', 'e'};
constexpr uint32_t kVersion = 1;

uint32_t SumOf(Header header, absl::string_view entries) {
  header.sum = 0;
  return Crc32c(entries, Crc32c({reinterpret_cast<const char*>(&header), sizeof(header)}));
}

}  // namespace

int64_t TableBytes(int64_t chunks) {
  return RoundUp(
      static_cast<int64_t>(sizeof(Header)) + chunks * static_cast<int64_t>(sizeof(Entry)),
      kFileBlockBytes);
}

int64_t SlotBytes(int64_t chunk_bytes) { return RoundUp(chunk_bytes, kFileBlockBytes); }

int64_t LayOut(absl::Span<const int64_t> chunk_bytes, absl::Span<int64_t> begins) {
  int64_t at = 2 * TableBytes(static_cast<int64_t>(chunk_bytes.size()));
  for (size_t i = 0; i < chunk_bytes.size(); ++i) {
    if (i < begins.size()) begins[i] = at;
    at += 2 * SlotBytes(chunk_bytes[i]);
  }
  return at;
}

uint32_t LayoutSum(absl::Span<const int64_t> chunk_bytes) {
  return Crc32c({reinterpret_cast<const char*>(chunk_bytes.data()),
                 chunk_bytes.size() * sizeof(chunk_bytes[0])});
}

void WriteTable(const TableHead& head, absl::Span<const ChunkVersion> versions,
                absl::Span<char> to) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.layout_sum = head.layout_sum;
  header.boot_sum = head.boot_sum;
  header.commits = head.commits;
  header.chunks = static_cast<int64_t>(versions.size());
  std::memset(to.data(), 0, to.size());
  char* at = to.data() + sizeof(Header);
  for (const ChunkVersion& version : versions) {
    const Entry entry = {version.sum, static_cast<int16_t>(version.slot),
                         static_cast<uint16_t>(version.has_sum ? 1 : 0)};
    std::memcpy(at, &entry, sizeof(entry));
    at += sizeof(entry);
  }
  header.sum = SumOf(header, {to.data() + sizeof(Header), to.size() - sizeof(Header)});
  std::memcpy(to.data(), &header, sizeof(header));
}

absl::StatusOr<TableHead> ReadTable(absl::string_view from, uint32_t layout_sum,
                                    absl::Span<ChunkVersion> versions) {
  Header header;
  if (from.size() < sizeof(header)) return absl::DataLossError("it is cut");
  std::memcpy(&header, from.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion) {
    return absl::DataLossError("it is none");
  }
  // Of other chunks it may have another length.
  if (header.layout_sum != layout_sum || header.chunks != static_cast<int64_t>(versions.size())) {
    return absl::InvalidArgumentError("it is of other chunks");
  }
  if (SumOf(header, from.substr(sizeof(header))) != header.sum) {
    return absl::DataLossError("it is damaged");
  }
  from.remove_prefix(sizeof(header));
  for (ChunkVersion& version : versions) {
    Entry entry;
    std::memcpy(&entry, from.data(), sizeof(entry));
    from.remove_prefix(sizeof(entry));
    if (entry.slot < -1 || entry.slot > 1) return absl::DataLossError("it names no slot");
    version = {entry.slot, entry.has_sum != 0, entry.sum};
  }
  return TableHead{header.layout_sum, header.boot_sum, header.commits};
}

uint32_t BootSum() {
  SystemCalls& system = SystemCalls::Real();
  const int fd = system.Open("/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
  if (fd < 0) return 0;
  char text[64];
  const ssize_t bytes = system.ReadAt(fd, text, sizeof(text), 0);
  system.Close(fd);
  return bytes > 0 ? Crc32c({text, static_cast<size_t>(bytes)}) : 0;
}

}  // namespace brigade::device::internal
