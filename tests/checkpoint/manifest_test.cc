#include "brigade/checkpoint/manifest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/tests/testing/counted_allocations.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::testing::PeakOfAllocations;
using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Two files of 10 and 6 bytes, and one that is empty.
Manifest Small() {
  return {.state = {{"step", "3"}},
          .rates = {{"groups[0].lr", "0.001"}},
          .options = {{"dtype", "bfloat16"}},
          .parameters = {{"w", "[2] float32, group 0"}},
          .training = {{"seed", "7"}},
          .file_bytes = 400,
          .files = {{.name = "a", .bytes = 10, .crc32c = 0xf, .tensors = {{"w", 0xffffffff}}},
                    {.name = "b", .bytes = 6, .crc32c = 0x12345678},
                    {.name = "empty"}}};
}

// The same in two piece files.
Manifest InPieces() {
  Manifest manifest = Small();
  manifest.pieces = {{.name = "p0", .bytes = 9, .crc32c = 1, .extents = {{1, 2, 4}, {0, 5, 5}}},
                     {.name = "p1", .bytes = 7, .crc32c = 2, .extents = {{0, 0, 5}, {1, 0, 2}}},
                     {.name = "p2"}};
  return manifest;
}

// Every member of it.
std::string Describe(const Manifest& manifest) {
  std::string text;
  for (const Fields* fields : {&manifest.state, &manifest.rates, &manifest.options,
                               &manifest.parameters, &manifest.training}) {
    for (const auto& [name, value] : *fields) absl::StrAppend(&text, name, "=", value, ";");
    text += '\n';
  }
  absl::StrAppend(&text, manifest.file_bytes, "\n");
  for (const Manifest::File& file : manifest.files) {
    absl::StrAppend(&text, file.name, " ", file.bytes, " ", file.crc32c, ":");
    for (const Manifest::Tensor& tensor : file.tensors) {
      absl::StrAppend(&text, " ", tensor.name, " ", tensor.crc32c);
    }
    text += '\n';
  }
  for (const PieceFile& file : manifest.pieces) {
    absl::StrAppend(&text, file.name, " ", file.bytes, " ", file.crc32c, ":");
    for (const PieceFile::Extent& extent : file.extents) {
      absl::StrAppend(&text, " ", extent.file, " ", extent.offset, " ", extent.bytes);
    }
    text += '\n';
  }
  return text;
}

// What comes before the checksum.
std::string Summed(const std::string& text) { return text.substr(0, text.rfind(",\n\"crc32c\"")); }

std::string WithSum(const std::string& summed) {
  return absl::StrCat(summed,
                      absl::StrFormat(",\n\"crc32c\": \"%08x\"\n}\n", device::Crc32c(summed)));
}

// A manifest in which `from` is `to`, with the checksum that belongs to that.
std::string Changed(const Manifest& manifest, const std::string& from, const std::string& to) {
  const std::string text = Summed(ManifestText(manifest).value());
  EXPECT_TRUE(absl::StrContains(text, from)) << from << " in " << text;
  return WithSum(absl::StrReplaceAll(text, {{from, to}}));
}

void ExpectReadable(const absl::Status& status) {
  const absl::string_view message = status.message();
  EXPECT_LE(message.size(), 2000u);
  EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](unsigned char c) {
    return absl::ascii_isprint(c);
  })) << message;
}

TEST(ManifestTest, WritesTheKnownText) {
  EXPECT_EQ(ManifestText(InPieces()).value(), WithSum(R"({
"format": "brigade checkpoint",
"version": 1,
"state": {
 "step": "3"},
"rates": {
 "groups[0].lr": "0.001"},
"options": {
 "dtype": "bfloat16"},
"training": {
 "seed": "7"},
"parameters": {
 "w": "[2] float32, group 0"},
"file_bytes": 400,
"files": [
 {"name": "a", "bytes": 10, "crc32c": "0000000f", "tensors": [
  {"name": "w", "crc32c": "ffffffff"}]},
 {"name": "b", "bytes": 6, "crc32c": "12345678", "tensors": []},
 {"name": "empty", "bytes": 0, "crc32c": "00000000", "tensors": []}],
"pieces": [
 {"name": "p0", "bytes": 9, "crc32c": "00000001", "extents": [
  [1, 2, 4],
  [0, 5, 5]]},
 {"name": "p1", "bytes": 7, "crc32c": "00000002", "extents": [
  [0, 0, 5],
  [1, 0, 2]]},
 {"name": "p2", "bytes": 0, "crc32c": "00000000", "extents": []}])"));
}

TEST(ManifestTest, ReadsWhatItWrites) {
  Manifest odd = Small();
  const std::string name = "\"quoted\"\\\n\t\x01\x7f \xc3\xa9 \xf0\x9f\x98\x80";
  odd.training = {{"", ""}, {name, name}, {std::string("a\0b", 3), std::string("\0", 1)}};
  odd.parameters = odd.training;
  odd.files[0].name = name;
  odd.files[0].tensors = {{name, 1}, {"", 2}};
  odd.files[1].name = std::string(255, 'x');
  odd.files[2].bytes = kMost - 16;
  for (const Manifest& manifest : {Manifest(), Small(), InPieces(), odd}) {
    ASSERT_OK_AND_ASSIGN(const std::string text, ManifestText(manifest));
    ASSERT_OK_AND_ASSIGN(const Manifest read, ParseManifest(text));
    EXPECT_EQ(Describe(read), Describe(manifest));
    EXPECT_EQ(ManifestText(read).value(), text);
  }
}

TEST(ManifestTest, NothingAfterTheChecksumAndNothingWithoutIt) {
  const std::string text = ManifestText(Small()).value();
  for (const std::string& wrong : {text + " ", text + text, " " + text, std::string(), Summed(text),
                                   Summed(text) + "\n}\n", WithSum(""), WithSum("{")}) {
    EXPECT_FALSE(ParseManifest(wrong).ok()) << wrong;
  }
  // Upper case is another text.
  EXPECT_THAT(ParseManifest(absl::StrReplaceAll(
                  text, {{text.substr(text.size() - 12),
                          absl::AsciiStrToUpper(text.substr(text.size() - 12))}})),
              StatusIs(kDataLoss));
}

TEST(ManifestTest, EveryPrefixIsAnError) {
  for (const Manifest& manifest : {Small(), InPieces()}) {
    const std::string text = ManifestText(manifest).value();
    for (size_t size = 0; size < text.size(); ++size) {
      EXPECT_THAT(ParseManifest(absl::string_view(text).substr(0, size)), StatusIs(kDataLoss))
          << size;
    }
  }
}

TEST(ManifestTest, EveryFlippedBitIsAnError) {
  const std::string text = ManifestText(InPieces()).value();
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = ParseManifest(flipped).status();
    ASSERT_THAT(status, StatusIs(kDataLoss)) << bit;
    ExpectReadable(status);
  }
}

// The checksum finds damage, not intent: what it belongs to is looked at as closely.
TEST(ManifestTest, WithTheRightChecksumNoBitAndNoPrefixCrashes) {
  const std::string text = Summed(ManifestText(InPieces()).value());
  int accepted = 0;
  const auto expect = [&](const std::string& summed) {
    const auto manifest = ParseManifest(WithSum(summed));
    if (manifest.ok()) {
      ++accepted;
      EXPECT_OK(ParseManifest(ManifestText(*manifest).value()));
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(manifest.status()) ||
                  absl::IsUnimplemented(manifest.status()))
          << manifest.status();
      ExpectReadable(manifest.status());
    }
  };
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    expect(flipped);
  }
  // In names, values and checksums.
  EXPECT_GT(accepted, 0);
  for (size_t size = 0; size < text.size(); ++size) expect(text.substr(0, size));
}

TEST(ManifestTest, RefusesKeysAndTypesThatAreNotItsOwn) {
  const Manifest manifest = InPieces();
  const auto expect = [&](const std::string& from, const std::string& to, const std::string& why) {
    EXPECT_THAT(ParseManifest(Changed(manifest, from, to)), StatusIs(kInvalid, HasSubstr(why)))
        << to;
  };
  // Keys that are missing, and others.
  const std::string members[] = {"\"format\": \"brigade checkpoint\"",
                                 "\"version\": 1",
                                 "\"state\": {}",
                                 "\"rates\": {}",
                                 "\"options\": {}",
                                 "\"training\": {}",
                                 "\"parameters\": {}",
                                 "\"file_bytes\": 1",
                                 "\"files\": []"};
  const auto without = [&](const std::string& member) {
    std::vector<std::string> others(std::begin(members), std::end(members));
    others.erase(std::remove(others.begin(), others.end(), member), others.end());
    return ParseManifest(WithSum("{" + absl::StrJoin(others, ",\n"))).status();
  };
  EXPECT_OK(without(""));
  for (const std::string& member : members) {
    const std::string key = member.substr(0, member.find(':'));
    EXPECT_THAT(without(member), StatusIs(kInvalid, "the manifest: " + key + " is missing"));
  }
  expect("\n\"files\"", "\n\"more\": 1,\n\"files\"",
         "the manifest has a key that is not known: \"more\"");
  expect("{\"name\": \"b\", ", "{\"name\": \"b\", \"more\": 1, ", "file 1 has a key that is not");
  expect("{\"name\": \"b\", ", "{", "file 1: \"name\" is missing");
  expect("\"bytes\": 6, ", "", "file 1: \"bytes\" is missing");
  expect(", \"crc32c\": \"12345678\"", "", "file 1: \"crc32c\" is missing");
  expect(", \"tensors\": [\n  {\"name\": \"w\", \"crc32c\": \"ffffffff\"}]", "",
         "file 0: \"tensors\" is missing");
  expect("{\"name\": \"w\", ", "{", "tensor 0 of file 0: \"name\" is missing");
  expect(", \"crc32c\": \"ffffffff\"", ", \"crc32c\": \"ffffffff\", \"dtype\": \"F32\"",
         "tensor 0 of file 0 has a key that is not known");
  expect("{\"name\": \"p2\", ", "{", "piece file 2: \"name\" is missing");
  expect(", \"extents\": []", "", "piece file 2: \"extents\" is missing");
  expect("\"extents\": []", "\"extents\": [], \"more\": {}", "piece file 2 has a key that is not");
  // Keys given twice.
  expect("\n\"files\"", "\n\"version\": 1,\n\"files\"", "the manifest: \"version\" is given twice");
  expect("\"bytes\": 6,", "\"bytes\": 6, \"bytes\": 6,", "file 1: \"bytes\" is given twice");
  expect("\n\"files\"", "\n\"crc32c\": \"00000000\",\n\"files\"",
         "the manifest: \"crc32c\" is given twice");
  expect("\"3\"", "\"3\", \"step\": \"3\"", "state: \"step\" is given twice");
  // Types.
  expect("\"brigade checkpoint\"", "1", "\"format\" is number");
  expect("brigade checkpoint", "safetensors", "\"format\" is \"safetensors\"");
  for (const char* key : {"state", "rates", "options", "training", "parameters"}) {
    expect(absl::StrCat("\"", key, "\": {"), absl::StrCat("\"", key, "\": [], \"other\": {"),
           absl::StrCat("\"", key, "\" is array"));
  }
  expect("\"3\"", "3", "state: \"step\" is no text");
  expect("\"3\"", "{\"a\": \"3\"}", "state: \"step\" is no text");
  expect("\"name\": \"b\"", "\"name\": null", "file 1: \"name\" is null");
  expect("\"12345678\"", "12345678", "file 1: \"crc32c\" is number");
  for (const char* sum : {"1234567", "123456789", "0x345678", " 2345678", "1234567g", "1234567F",
                          "-2345678", "+2345678", ""}) {
    expect("12345678", sum, "file 1: \"crc32c\" is ");
  }
  expect("\"tensors\": [\n  {", "\"tensors\": [[], {", "tensor 0 of file 0 is no object");
  expect("\"files\": [\n {", "\"files\": [0, {", "file 0 is no object");
  expect("\"pieces\": [\n {", "\"pieces\": [\"\", {", "piece file 0 is no object");
  expect("\"tensors\": []", "\"tensors\": {}", "file 1: \"tensors\" is object");
  expect("\"extents\": []", "\"extents\": 0", "piece file 2: \"extents\" is number");
  EXPECT_THAT(ParseManifest(Changed(Small(), "\"files\"", "\"pieces\": [],\n\"files\"")),
              StatusIs(kInvalid, "\"pieces\" holds nothing"));
}

TEST(ManifestTest, RefusesNumbersThatCountNoBytes) {
  const Manifest manifest = InPieces();
  for (const char* number :
       {"-6", "-0", "6.0", "6e0", "6.5", "\"6\"", "true", "null", "[6]", "9223372036854775808",
        "18446744073709551615", "18446744073709551616", "1e400", "1e-400"}) {
    EXPECT_THAT(
        ParseManifest(Changed(manifest, "\"bytes\": 6", absl::StrCat("\"bytes\": ", number))),
        StatusIs(kInvalid))
        << number;
    for (const char* extent : {"[%s, 0, 2]", "[1, %s, 2]", "[1, 0, %s]"}) {
      const std::string changed = absl::StrReplaceAll(extent, {{"%s", number}});
      EXPECT_THAT(ParseManifest(Changed(manifest, "[1, 0, 2]", changed)), StatusIs(kInvalid))
          << changed;
    }
  }
  EXPECT_THAT(ParseManifest(Changed(manifest, "400", "-400")),
              StatusIs(kInvalid, "the manifest: \"file_bytes\" is number"));
  Manifest negative = manifest;
  negative.file_bytes = -1;
  EXPECT_THAT(ManifestText(negative), StatusIs(kInvalid, "file_bytes is -1"));
  EXPECT_THAT(ParseManifest(Changed(manifest, "\"version\": 1", "\"version\": 2")),
              StatusIs(absl::StatusCode::kUnimplemented, "version 2 is not known; 1 is"));
  EXPECT_THAT(ParseManifest(Changed(manifest, "\"version\": 1", "\"version\": 0")),
              StatusIs(absl::StatusCode::kUnimplemented, "version 0 is not known; 1 is"));
  EXPECT_THAT(ParseManifest(Changed(manifest, "\"version\": 1", "\"version\": 1.0")),
              StatusIs(kInvalid, "the manifest: \"version\" is number"));
  // Of a version to come nothing else is looked at.
  EXPECT_THAT(ParseManifest(WithSum("{\"format\": \"brigade checkpoint\", \"version\": 3")),
              StatusIs(absl::StatusCode::kUnimplemented, "version 3 is not known; 1 is"));
}

TEST(ManifestTest, RefusesNamesThatLeadElsewhere) {
  const std::string names[] = {"",
                               ".",
                               "..",
                               ".hidden",
                               "../a",
                               "a/b",
                               "/a",
                               "a/",
                               std::string("a\0", 2),
                               std::string("\0", 1),
                               std::string(256, 'x')};
  for (const std::string& name : names) {
    EXPECT_THAT(CheckFileName(name), StatusIs(kInvalid, HasSubstr("is no name of a file")));
    Manifest file = InPieces(), piece = InPieces();
    file.files[1].name = name;
    piece.pieces[1].name = name;
    for (const Manifest& manifest : {file, piece}) {
      EXPECT_THAT(ManifestText(manifest), StatusIs(kInvalid, HasSubstr("is no name of a file")));
    }
    const std::string text = absl::StrReplaceAll(name, {{std::string("\0", 1), "\\u0000"}});
    for (const char* given : {"\"b\"", "\"p1\""}) {
      EXPECT_THAT(ParseManifest(Changed(InPieces(), given, absl::StrCat("\"", text, "\""))),
                  StatusIs(kInvalid, HasSubstr("is no name of a file")))
          << text;
    }
  }
  for (const std::string& name :
       {std::string("a..b"), std::string("a."), std::string("\\"), std::string(255, 'x')}) {
    EXPECT_OK(CheckFileName(name));
  }
}

TEST(ManifestTest, RefusesANameGivenTwice) {
  for (const auto& [from, to] :
       {std::pair("\"b\"", "\"a\""), std::pair("\"p1\"", "\"p0\""), std::pair("\"p1\"", "\"a\"")}) {
    EXPECT_THAT(ParseManifest(Changed(InPieces(), from, to)),
                StatusIs(kInvalid, HasSubstr(" is given twice")));
  }
  Manifest manifest = Small();
  manifest.files[0].name = manifest.files[1].name = "\x1b[31m\n";
  const absl::Status status = ManifestText(manifest).status();
  EXPECT_THAT(status, StatusIs(kInvalid, "\\x1b[31m\\x0a is given twice"));
}

TEST(ManifestTest, RefusesExtentsThatAreNotAllBytesOnce) {
  const auto expect = [](const std::vector<PieceFile>& pieces, const std::string& why) {
    Manifest manifest = Small();
    manifest.pieces = pieces;
    EXPECT_THAT(ManifestText(manifest), StatusIs(kInvalid, HasSubstr(why)));
    // The same by the reader, from a text that was never checked.
    std::string text = Summed(ManifestText(Small()).value()) + ",\n\"pieces\": [";
    for (const PieceFile& piece : pieces) {
      absl::StrAppend(&text, text.back() == '[' ? "" : ",", "{\"name\": \"", piece.name,
                      "\", \"bytes\": ", piece.bytes, ", \"crc32c\": \"00000000\", \"extents\": [");
      for (const PieceFile::Extent& extent : piece.extents) {
        absl::StrAppend(&text, text.back() == '[' ? "" : ",", "[", extent.file, ",", extent.offset,
                        ",", extent.bytes, "]");
      }
      text += "]}";
    }
    EXPECT_THAT(ParseManifest(WithSum(text + "]")), StatusIs(kInvalid));
  };
  const auto piece = [](int64_t bytes, const std::vector<PieceFile::Extent>& extents) {
    return PieceFile{.name = "p", .bytes = bytes, .extents = extents};
  };
  const auto expect_one = [&](int64_t bytes, const std::vector<PieceFile::Extent>& extents,
                              const std::string& why) { expect({piece(bytes, extents)}, why); };
  const std::string no_part = " is no part of a file of the manifest";
  expect_one(0, {}, "the pieces of a do not follow each other at byte 0");
  expect_one(10, {{0, 0, 10}}, "the pieces of b do not follow each other at byte 0");
  // Holes: at the begin, amid, at the end.
  expect_one(15, {{0, 1, 9}, {1, 0, 6}}, "of a do not follow each other at byte 0");
  expect_one(15, {{0, 0, 4}, {0, 5, 5}, {1, 0, 6}}, "of a do not follow each other at byte 4");
  expect_one(15, {{0, 0, 9}, {1, 0, 6}}, "of a do not follow each other at byte 9");
  expect_one(15, {{0, 0, 10}, {1, 0, 5}}, "of b do not follow each other at byte 5");
  // Overlaps: within a piece file, and of two.
  expect_one(17, {{0, 0, 5}, {0, 4, 6}, {1, 0, 6}}, "of a do not follow each other at byte 5");
  expect_one(26, {{0, 0, 10}, {0, 0, 10}, {1, 0, 6}}, "of a do not follow each other at byte 10");
  expect_one(17, {{0, 0, 10}, {1, 0, 6}, {1, 5, 1}}, "of b do not follow each other at byte 6");
  expect({piece(16, {{0, 0, 10}, {1, 0, 6}}), {.name = "q", .bytes = 1, .extents = {{0, 3, 1}}}},
         "of a do not follow each other at byte 10");
  // Beyond the file.
  expect_one(17, {{0, 0, 11}, {1, 0, 6}}, "extent 0 of p" + no_part);
  expect_one(17, {{0, 0, 10}, {1, 1, 6}}, "extent 1 of p" + no_part);
  expect_one(16, {{0, 0, 10}, {1, 7, 1}}, "extent 1 of p" + no_part);
  expect_one(16, {{0, 0, 10}, {1, kMost, kMost}}, "extent 1 of p" + no_part);
  expect_one(16, {{0, 0, 10}, {1, 0, kMost}}, "extent 1 of p" + no_part);
  // Of no file, or of no bytes.
  expect_one(17, {{0, 0, 10}, {1, 0, 6}, {3, 0, 1}}, "extent 2 of p" + no_part);
  expect_one(17, {{0, 0, 10}, {1, 0, 6}, {-1, 0, 1}}, "extent 2 of p" + no_part);
  expect_one(16, {{0, 0, 10}, {1, 0, 6}, {2, 0, 0}}, "extent 2 of p" + no_part);
  expect_one(16, {{0, 0, 10}, {1, -1, 6}}, "extent 1 of p" + no_part);
  expect_one(4, {{0, 0, 10}, {1, 6, -6}}, "extent 1 of p" + no_part);
  // More or less than the piece file has.
  expect_one(15, {{0, 0, 10}, {1, 0, 6}}, "p has 15 bytes, its extents 16");
  expect_one(-16, {{0, 0, 10}, {1, 0, 6}}, "p has -16 bytes");
  for (const char* index : {"2147483648", "4294967296", "9223372036854775807"}) {
    EXPECT_THAT(
        ParseManifest(Changed(InPieces(), "[0, 0, 5]", absl::StrCat("[", index, ", 0, 5]"))),
        StatusIs(kInvalid, HasSubstr("extent 0 of p1 is no part of a file")));
  }
  for (const char* extent : {"[]", "[0]", "[0, 0]", "[0, 0, 5, 0]", "{}", "0", "[[0], 0, 5]"}) {
    EXPECT_THAT(ParseManifest(Changed(InPieces(), "[0, 0, 5]", extent)),
                StatusIs(kInvalid, HasSubstr("extent 0 of p1 is no part of a file")));
  }
}

TEST(ManifestTest, RefusesExtentsWhoseSumOverflows) {
  constexpr int64_t kHalf = kMost / 2;
  Manifest manifest;
  manifest.files = {{.name = "a", .bytes = kHalf}, {.name = "b", .bytes = kHalf}};
  manifest.pieces = {{.name = "p", .bytes = kHalf, .extents = {{0, 0, kHalf}}},
                     {.name = "q", .bytes = kHalf, .extents = {{1, 0, kHalf}}}};
  ASSERT_OK_AND_ASSIGN(const std::string text, ManifestText(manifest));
  ASSERT_OK(ParseManifest(text));
  for (int i = 0; i < 2; ++i) manifest.pieces[0].extents.push_back({1, 0, kHalf});
  manifest.pieces[0].bytes = -2;
  manifest.pieces.pop_back();
  EXPECT_THAT(ManifestText(manifest), StatusIs(kInvalid, "p has -2 bytes"));
  manifest.pieces[0].bytes = 0;
  EXPECT_THAT(ManifestText(manifest),
              StatusIs(kInvalid, "extent 2 of p is no part of a file of the manifest"));
  EXPECT_THAT(ParseManifest(WithSum(absl::StrReplaceAll(
                  Summed(text),
                  {{"]]},\n {\"name\": \"q\"",
                    ",4611686018427387903],[1,0,4611686018427387903],[1,0,4611686018427387903]]},"
                    "{\"name\":\"q\""},
                   {"[0, 0, 4611686018427387903", "[0, 0"}}))),
              StatusIs(kInvalid, "extent 2 of p is no part of a file of the manifest"));
}

TEST(ManifestTest, RefusesFilesWhoseSumOverflows) {
  Manifest manifest;
  manifest.files = {{.name = "a", .bytes = kMost}, {.name = "b", .bytes = 0}};
  EXPECT_OK(ManifestText(manifest));
  manifest.files[1].bytes = 1;
  EXPECT_THAT(ManifestText(manifest),
              StatusIs(kInvalid, "with b files have more bytes than 2^63 - 1"));
}

TEST(ManifestTest, RefusesWhatIsNoUtf8) {
  const std::string bad = "a\xff\x1b";
  std::vector<Manifest> manifests(9, InPieces());
  manifests[0].state[bad] = "";
  manifests[1].rates["a"] = bad;
  manifests[2].options[bad] = "";
  manifests[3].training["a"] = bad;
  manifests[4].parameters[bad] = "";
  manifests[5].files[0].name = bad;
  manifests[6].files[0].tensors[0].name = bad;
  manifests[7].pieces[0].name = bad;
  manifests[8].training["a"] = "\xed\xa0\x80";
  for (size_t m = 0; m < manifests.size(); ++m) {
    const absl::Status status = ManifestText(manifests[m]).status();
    EXPECT_THAT(status, StatusIs(kInvalid, m < 8 ? "\"a\\xff\\x1b\" is no UTF-8"
                                                 : "\"\\xed\\xa0\\x80\" is no UTF-8"));
  }
  EXPECT_THAT(ParseManifest(Changed(Small(), "bfloat16", bad)),
              StatusIs(kInvalid, HasSubstr("ill-formed UTF-8")));
}

TEST(ManifestTest, RefusesJsonThatIsTooDeep) {
  for (const size_t depth : {1, 1000, 1'000'000}) {
    const absl::Status status =
        ParseManifest(Changed(Small(), "\"files\": [",
                              absl::StrCat("\"files\": [", std::string(depth, '['),
                                           std::string(depth, ']'), ",")))
            .status();
    EXPECT_THAT(status, StatusIs(kInvalid, "file 0 is no object"));
  }
}

TEST(ManifestTest, RefusesWhatIsTooLong) {
  Manifest manifest = Small();
  // The end of a line becomes 2 bytes.
  for (int i = 0; i < 64; ++i) {
    manifest.training[absl::StrCat(i)] = std::string(kMostManifestBytes / 64 / 2, '\n');
  }
  EXPECT_THAT(ManifestText(manifest),
              StatusIs(kInvalid, HasSubstr(absl::StrCat("of at most ", kMostManifestBytes))));
}

// A reader's memory is in proportion to the text, whatever this says.
void ExpectMemory(const std::string& text, double times) {
  const PeakOfAllocations peak;
  (void)ParseManifest(text).ok();
  EXPECT_LT(static_cast<double>(peak.bytes()) / static_cast<double>(text.size()), times)
      << text.substr(0, 300);
}

TEST(ManifestTest, TakesMemoryInProportionToTheText) {
  Manifest manifest = Small();
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = absl::StrCat("transformer.h.", i, ".attention.weight");
    manifest.parameters[name] = "[4096, 4096] bfloat16, group 0";
    manifest.files[0].tensors.push_back({name, 1});
  }
  ExpectMemory(ManifestText(manifest).value(), 4);
}

TEST(ManifestTest, TakesNoMemoryForWhatItRefuses) {
  const auto repeated = [](absl::string_view part) {
    std::string parts(part);
    for (int i = 0; i < 100'000; ++i) absl::StrAppend(&parts, ",", part);
    return parts;
  };
  for (const char* key : {"files", "tensors", "pieces", "extents"}) {
    const std::string begin = absl::StrCat("\"", key, "\": [");
    for (const char* part :
         {"[]", "{}", "0", "-1", "0.5", "\"\"", "[[[]]]", "{\"\":[0]}", "{\"name\":\"\"}"}) {
      ExpectMemory(Changed(InPieces(), begin, begin + repeated(part) + ","), 1);
    }
  }
  for (const char* value : {"[0,0,0,0]", "{\"a\":0}", "\"\"", "[[]]"}) {
    for (const char* key : {"\"bytes\": 6", "\"version\": 1", "\"crc32c\": \"ffffffff\""}) {
      const std::string name = std::string(key).substr(0, std::string(key).find(' ') + 1);
      ExpectMemory(Changed(InPieces(), key, absl::StrCat(name, "[", repeated(value), "]")), 1);
    }
  }
  std::string keys;
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&keys, "\"", i, "\":0,");
  for (const char* begin :
       {"{\n\"format\"", "{\"name\": \"a\"", "{\"name\": \"w\"", "{\"name\": \"p0\""}) {
    const std::string open = begin;
    ExpectMemory(Changed(InPieces(), begin, open.substr(0, 1) + keys + open.substr(1)), 1);
  }
}

// Where each part is as it may be, if not together.
TEST(ManifestTest, TakesBoundedMemoryForTheShortestParts) {
  std::string fields = "\"\":\"\"", files, tensors, extents;
  for (int i = 0; i < 50'000; ++i) absl::StrAppend(&fields, ",\"", i, "\":\"\"");
  for (int i = 0; i < 100'000; ++i) {
    files += "{\"name\":\"\",\"bytes\":0,\"crc32c\":\"00000000\",\"tensors\":[]},";
    tensors += "{\"name\":\"\",\"crc32c\":\"00000000\"},";
    extents += "[0,0,1],";
  }
  ExpectMemory(Changed(Small(), "\"step\"", fields + ",\"step\""), 16);
  ExpectMemory(Changed(InPieces(), "\"files\": [", "\"files\": [" + files), 16);
  ExpectMemory(Changed(InPieces(), "\"tensors\": []",
                       absl::StrCat("\"tensors\": [", tensors.substr(0, tensors.size() - 1), "]")),
               16);
  ExpectMemory(Changed(InPieces(), "\"extents\": [\n  [1", "\"extents\": [" + extents + "[1"), 16);
}

TEST(ManifestTest, ReadsAndWritesManyTensorsAndExtents) {
  constexpr int kTensors = 300'000;
  Manifest manifest;
  manifest.files = {{.name = "a", .bytes = kTensors}};
  manifest.pieces = {{.name = "p"}, {.name = "q"}};
  for (int i = 0; i < kTensors; ++i) {
    manifest.files[0].tensors.push_back({absl::StrCat("t", i), 1});
    PieceFile& piece = manifest.pieces[i % 2];
    piece.extents.push_back({0, i, 1});
    ++piece.bytes;
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, ManifestText(manifest));
  ASSERT_OK_AND_ASSIGN(const Manifest read, ParseManifest(text));
  EXPECT_EQ(Describe(read), Describe(manifest));
}

}  // namespace
}  // namespace brigade::checkpoint
