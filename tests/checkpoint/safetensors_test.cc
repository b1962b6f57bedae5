#include "brigade/checkpoint/safetensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/file/crc32c.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::checkpoint {
namespace {

using ::brigade::precision::DType;
using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;

// With as much data behind it as `data_bytes`.
absl::StatusOr<SafetensorsHeader> Parse(const std::string& json, uint64_t data_bytes) {
  return ParseHeader(json, 8 + json.size() + data_bytes);
}

// Of what makes tests shorter: {"NAME":{"dtype":TYPE,"shape":SHAPE,"data_offsets":OFFSETS}}.
std::string Tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return absl::StrCat("\"", name, R"(":{"dtype":")", type, R"(","shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}");
}
std::string Object(const std::vector<std::string>& members) {
  std::string json = "{";
  for (const std::string& member : members) {
    absl::StrAppend(&json, json.size() == 1 ? "" : ",", member);
  }
  return json + "}";
}

void ExpectRefused(const std::string& json, uint64_t data_bytes, const std::string& why) {
  EXPECT_THAT(Parse(json, data_bytes).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
      << json;
}

// The reference's bytes.
TEST(SafetensorsTest, WritesTheKnownFiles) {
  std::string file = MakeHeader({{.name = "w", .type = "F32", .shape = {2}}}).value();
  EXPECT_EQ(file, absl::StrCat(absl::string_view("\x38\0\0\0\0\0\0\0", 8),
                               R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )"));
  const absl::string_view data("\0\0\x80\x3f\0\0\0\xc0", 8);
  EXPECT_EQ(device::Crc32c(data), 0xaa36f2c9u);
  EXPECT_EQ(device::Crc32c(absl::StrCat(file, data)), 0x4398d7f2u);
  file = MakeHeader({}).value();
  EXPECT_EQ(file, absl::StrCat(absl::string_view("\x08\0\0\0\0\0\0\0", 8), "{}      "));
  EXPECT_EQ(device::Crc32c(file), 0x6eeedad3u);
}

TEST(SafetensorsTest, ReadsWhatItWrites) {
  const std::vector<TensorInfo> tensors = {
      {.name = "scalar", .type = "F64"},
      {.name = "\"quoted\"\n\xc3\xa9", .type = "BF16", .shape = {3, 5}},
      {.name = "empty", .type = "I32", .shape = {7, 0}},
      {.name = "also empty", .type = "I32", .shape = {0}},
      {.name = "bits", .type = "F4", .shape = {2}}};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"", "\\"}};
  for (const uint64_t alignment : {8, 64, 4096}) {
    const std::string file = MakeHeader(tensors, metadata, alignment).value();
    EXPECT_EQ(file.size() % alignment, 0u);
    const uint64_t file_bytes = file.size() + 8 + 30 + 1;
    EXPECT_EQ(ParseHeaderBytes(file, file_bytes).value(), file.size() - 8);
    const SafetensorsHeader header =
        ParseHeader(absl::string_view(file).substr(8), file_bytes).value();
    EXPECT_EQ(header.metadata, metadata);
    EXPECT_EQ(header.data_begin, file.size());
    ASSERT_EQ(header.tensors.size(), tensors.size());
    const uint64_t ends[] = {8, 38, 38, 38, 39};
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(header.tensors[i].name, tensors[i].name);
      EXPECT_EQ(header.tensors[i].type, tensors[i].type);
      EXPECT_EQ(header.tensors[i].shape, tensors[i].shape);
      EXPECT_EQ(header.tensors[i].end, ends[i]);
    }
  }
}

TEST(SafetensorsTest, KnowsTheTypes) {
  EXPECT_EQ(TypeName(DType::kBFloat16), "BF16");
  EXPECT_EQ(DTypeOf("BF16"), DType::kBFloat16);
  EXPECT_EQ(DTypeOf("F8_E4M3"), std::nullopt);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                            DType::kInt32, DType::kInt64, DType::kUint8}) {
    EXPECT_EQ(DTypeOf(TypeName(dtype)), dtype);
  }
  const std::pair<const char*, int> bytes_of_8[] = {
      {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"BF16", 16},   {"I32", 32}, {"U32", 32}, {"F32", 32},
      {"I64", 64},        {"U64", 64},        {"F64", 64},    {"C64", 64}};
  for (const auto& [type, bytes] : bytes_of_8) {
    EXPECT_OK(Parse(Object({Tensor("w", type, "[8]", absl::StrCat("[0,", bytes, "]"))}), bytes));
  }
}

TEST(SafetensorsTest, TakesWhatOtherWritersDo) {
  const std::string w = Tensor("w", "U8", "[1]", "[0,1]");
  // Blanks on either side, no multiple of 8.
  EXPECT_OK(Parse(absl::StrCat("  ", Object({w}), "   "), 1));
  EXPECT_OK(Parse(Object({R"("__metadata__":{})", w}), 1));
  EXPECT_OK(Parse(Object({w, R"("__metadata__":{"a":"b"})"}), 1));
  // In any order, of tensors and of fields.
  const auto header =
      Parse(Object({Tensor("b", "U8", "[2]", "[1,3]"), Tensor("a", "U8", "[1]", "[0,1]"),
                    R"("c":{"data_offsets":[3,4],"dtype":"U8","shape":[]})"}),
            4);
  ASSERT_OK(header);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[2].name, "c");
}

TEST(SafetensorsTest, RefusesLengthsThatCannotBe) {
  const auto length = [](const char* first, size_t bytes, uint64_t file_bytes) {
    return ParseHeaderBytes(absl::string_view(first, bytes), file_bytes).status();
  };
  EXPECT_THAT(length("\x02\0\0\0\0\0\0", 7, 7),
              StatusIs(absl::StatusCode::kInvalidArgument, "a file of 7 bytes has no header"));
  EXPECT_OK(length("\x02\0\0\0\0\0\0\0", 8, 10));
  for (const auto& [first, file_bytes] :
       {std::pair("\x02\0\0\0\0\0\0\0", uint64_t{9}),
        std::pair("\xff\xff\xff\xff\xff\xff\xff\xff", uint64_t{1} << 62),
        std::pair("\x01\xe1\xf5\x05\0\0\0\0", uint64_t{1} << 62)}) {
    EXPECT_THAT(length(first, 8, file_bytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a header of ")));
  }
  EXPECT_OK(length("\0\xe1\xf5\x05\0\0\0\0", 8, uint64_t{1} << 62));
}

TEST(SafetensorsTest, RefusesWhatIsNoHeader) {
  const std::string w = Tensor("w", "U8", "[1]", "[0,1]");
  ExpectRefused("", 0, "no object");
  ExpectRefused("   ", 0, "no object");
  ExpectRefused("[]", 0, "no object");
  ExpectRefused("7", 0, "no object");
  ExpectRefused("\xef\xbb\xbf{}", 0, "no object");
  ExpectRefused(Object({w}) + "x", 1, "not valid JSON");
  ExpectRefused(Object({w}) + std::string(1, '\0'), 1, "not valid JSON");
  ExpectRefused(Object({w}) + "{}", 1, "not valid JSON");
  ExpectRefused("{/**/}", 0, "not valid JSON");
  ExpectRefused("{,}", 0, "not valid JSON");
  ExpectRefused(Object({"\"\xff\":{}"}), 0, "not valid JSON");
  ExpectRefused(Object({R"("\ud800":{})"}), 0, "not valid JSON");
  for (const char* value : {"1", "-1", "1.5", "null", "true", "\"a\"", "[]"}) {
    ExpectRefused(Object({absl::StrCat("\"w\":", value)}), 0, "tensor \"w\": ");
    ExpectRefused(
        Object({absl::StrCat(R"("__metadata__":{"k":)", value[0] == '"' ? "{}" : value, "}")}), 0,
        value[0] == '[' || value[0] == '"' ? "__metadata__" : "to ");
  }
  ExpectRefused(Object({R"("__metadata__":1)"}), 0, "__metadata__");
}

TEST(SafetensorsTest, RefusesWhatIsGivenTwice) {
  const std::string w = Tensor("w", "U8", "[1]", "[0,1]"),
                    empty = Tensor("e", "U8", "[0]", "[0,0]");
  ExpectRefused(Object({w, w}), 1, "tensor \"w\": given twice");
  ExpectRefused(Object({empty, empty}), 0, "tensor \"e\": given twice");
  ExpectRefused(Object({R"("__metadata__":{})", R"("__metadata__":{})"}), 0,
                "__metadata__ is given twice");
  ExpectRefused(Object({R"("__metadata__":{"a":"1","a":"1"})"}), 0,
                "\"a\" is given twice in __metadata__");
  ExpectRefused(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                "tensor \"w\": dtype is given twice");
}

TEST(SafetensorsTest, RefusesNamesAndFields) {
  ExpectRefused(Object({Tensor("", "U8", "[1]", "[0,1]")}), 1, "no name");
  ExpectRefused(Object({Tensor("a\\u0000b", "U8", "[1]", "[0,1]")}), 1, "a NUL in the name");
  ExpectRefused(Object({R"("__metadata__":{"a\u0000b":"c"})"}), 0, "a NUL in \"a");
  EXPECT_OK(Parse(Object({R"("__metadata__":{"":"a\u0000b"})"}), 0));
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
                "\"x\" is no field of a tensor");
  ExpectRefused(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, "no dtype");
  ExpectRefused(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, "no shape");
  ExpectRefused(R"({"w":{"dtype":"U8","shape":[1]}})", 1, "no data_offsets");
  ExpectRefused(Object({Tensor("w", "F33", "[1]", "[0,1]")}), 1, "\"F33\" is no type");
  ExpectRefused(Object({Tensor("w", "f32", "[1]", "[0,4]")}), 4, "\"f32\" is no type");
  ExpectRefused(R"({"w":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype is or holds");
}

TEST(SafetensorsTest, RefusesNumbersAndRanges) {
  for (const char* number :
       {"-1", "-0", "1.0", "1e0", "18446744073709551616", "\"1\"", "null", "true", "[1]", "{}"}) {
    ExpectRefused(Object({Tensor("w", "U8", absl::StrCat("[", number, "]"), "[0,1]")}), 1,
                  "tensor \"w\": shape is or holds");
    ExpectRefused(Object({Tensor("w", "U8", "[1]", absl::StrCat("[0,", number, "]"))}), 1,
                  "tensor \"w\": data_offsets is or holds");
  }
  ExpectRefused(Object({Tensor("w", "U8", "[1]", "[0]")}), 1, "fewer than two");
  ExpectRefused(Object({Tensor("w", "U8", "[1]", "[0,1,1]")}), 1, "more than two");
  ExpectRefused(Object({Tensor("w", "U8", "1", "[0,1]")}), 1, "shape is or holds");
  std::string ones = "[1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  EXPECT_OK(Parse(Object({Tensor("w", "U8", ones + "]", "[0,1]")}), 1));
  // Before the rest is read: it is no JSON.
  ExpectRefused(Object({Tensor("w", "U8", ones + ",1,x]", "[0,1]")}), 1,
                "tensor \"w\": more than 64 dimensions");
  // 2^64 elements, and 2^64 bits.
  ExpectRefused(Object({Tensor("w", "U8", "[4294967296,4294967296]", "[0,0]")}), 0, "64 bits");
  ExpectRefused(Object({Tensor("w", "F64", "[288230376151711744]", "[0,0]")}), 0, "64 bits");
  ExpectRefused(Object({Tensor("w", "F4", "[3]", "[0,1]")}), 1, "amid a byte");
  ExpectRefused(Object({Tensor("w", "F32", "[2]", "[0,4]")}), 4, "are 8 bytes");
  ExpectRefused(Object({Tensor("w", "U8", "[1]", "[1,0]")}), 1, "are 1 bytes");
  // A gap, an overlap, a byte too many, a byte too few.
  const std::string a = Tensor("a", "U8", "[2]", "[0,2]");
  ExpectRefused(Object({a, Tensor("b", "U8", "[1]", "[3,4]")}), 4, "begins at 3");
  ExpectRefused(Object({a, Tensor("b", "U8", "[2]", "[1,3]")}), 3, "begins at 1");
  ExpectRefused(Object({a, Tensor("b", "U8", "[2]", "[0,2]")}), 2, "begins at 0");
  ExpectRefused(Object({a}), 3, "the tensors have 2 bytes, the file 3");
  ExpectRefused(Object({a}), 1, "the tensors have 2 bytes, the file 1");
  ExpectRefused(Object({Tensor("a", "U8", "[0]", "[7,7]")}), 0, "begins at 7");
}

TEST(SafetensorsTest, WritesNothingThatItWouldRefuse) {
  const auto refuses = [](const std::vector<TensorInfo>& tensors, const std::string& why) {
    EXPECT_THAT(MakeHeader(tensors).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refuses({{.name = "", .type = "U8"}}, "no name");
  refuses({{.name = "__metadata__", .type = "U8"}}, "the format's own name");
  refuses({{.name = "w", .type = "U8"}, {.name = "w", .type = "U8"}}, "given twice");
  refuses({{.name = "w", .type = "x"}}, "\"x\" is no type");
  refuses({{.name = "\xff", .type = "U8"}}, "UTF-8");
  const uint64_t sixteenth = uint64_t{1} << 60;
  std::vector<TensorInfo> giants(16, {.name = "", .type = "U8", .shape = {sixteenth}});
  for (size_t i = 0; i < giants.size(); ++i) giants[i].name = absl::StrCat(i);
  refuses(giants, "tensor \"15\": more bytes than 64 bits count");
  giants.pop_back();
  EXPECT_OK(MakeHeader(giants));
  refuses({{.name = "w", .type = "U8", .shape = std::vector<uint64_t>(65, 1)}},
          "tensor \"w\": more than 64 dimensions");
  EXPECT_OK(MakeHeader({{.name = "w", .type = "U8", .shape = std::vector<uint64_t>(64, 1)}}));
  EXPECT_THAT(MakeHeader({}, {{std::string("a\0b", 3), "c"}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a NUL in \"a")));
}

TEST(SafetensorsTest, AlignsToPowersOfTwoOfAtLeast8) {
  for (const uint64_t alignment : {0, 1, 3, 4, 12, 4095}) {
    EXPECT_THAT(
        MakeHeader({}, {}, alignment).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("an alignment of ", alignment, ", no power of two of at least 8")));
  }
  EXPECT_THAT(MakeHeader({}, {}, uint64_t{1} << 63).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of at most 100000000")));
}

}  // namespace
}  // namespace brigade::checkpoint
