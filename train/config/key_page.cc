#include "brigade/train/config/key_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/train/config/config_keys.h"

namespace brigade::train {
namespace {

constexpr char kIntroduction[] =
    R"(# Keys of a training's configuration

Every `train::Trainer` is configured by a JSON file with DeepSpeed's keys, and a section `brigade`
for what DeepSpeed has no key for; `--config=FILE` of the programs names it. Which keys the trainer
of a `models::Model` refuses is listed in [training.md](training.md#keys-that-a-model-refuses). This
page is made from the table by which all trainers read them:
`bazel run //train/config:configuration_reference` )"
    R"(<!-- run by: //tests/train/config:configuration_page_test --> prints it.

- **No key is ignored.** All that is refused is listed at once, each with its path, its value and
  the reason; of a key that there is not, with the nearest, if one is near. What goes by a key that
  is refused is found once that one is right.
- **What is off is accepted**: sections that say `"enabled": false`, devices that are `none`,
  false and neutral values.
- **What changes no result is accepted**: memory, speed and printing. Where nothing follows from
  it here, the trainer says so once, before the first step ("Without effect: ...").
- `"auto"`, with which programs above DeepSpeed leave a key to their own flags, is accepted where
  the trainer's flag gives the value (`--batch`, `--lr`, `--steps`, `--precision`), and where it
  changes no result. The flag's value must be in the key's range. Elsewhere the refusal says what
  to write.
- `null` is as good as nothing, of a section and of a key.
- Types of numbers are also accepted in full: `float32`, `float16`, `bfloat16`.
- Flags go before the file. `--batch` takes the place of `train_batch_size`; micro-batch and
  accumulation of the file stay, and with the ranks must give it. `--lr` takes the place of
  `optimizer.params.lr`; a schedule with rates of its own, beside which the key has no effect, must
  rise to the same.

What is not given has DeepSpeed's default where it changes a result, with two exceptions:
`gradient_clipping` is off, where DeepSpeed's default is 1.0 since 0.19.3, and
`data_types.grad_accum_dtype` is fp32, where DeepSpeed's default is the model's type.

In a default, words say what it follows from; in a type, "only" means that any other value is
refused.
)";

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", text, "`");
}

// JSON is code; words are not.
std::string Default(const Key& key) {
  if (key.required != nullptr) return "must be given";
  const std::string& text = key.value.otherwise;
  return Json::accept(text) ? Code(text) : text;
}

std::string Meaning(const Key& key) {
  const bool both = !key.meaning.empty() && !key.value.remark.empty();
  std::string text = absl::StrCat(key.meaning, both ? "; " : "", key.value.remark);
  if (key.also != nullptr)
    absl::StrAppend(&text, text.empty() ? "" : "; ", "also `", key.also, "`");
  return text;
}

// Of a section.
std::string About(const Key& key) {
  std::string text = key.meaning;
  if (key.has_switch) absl::StrAppend(&text, " Where `enabled` is false nothing else is read.");
  if (key.also != nullptr) absl::StrAppend(&text, " Its other name is `", key.also, "`.");
  return text;
}

class Page {
 public:
  // The keys of the object at `path`, and after them what is inside.
  void Section(absl::string_view path, absl::string_view meaning, const Keys& keys) {
    if (!path.empty()) absl::StrAppend(&text_, "\n## ", Code(path), "\n");
    Table(meaning, keys);
    for (const Key& key : keys) {
      const std::string place = PathOf(path, key.name);
      if (!key.types.empty()) Types(place, key);
      if (key.types.empty() && !key.keys.empty()) Section(place, About(key), key.keys);
    }
  }

  std::string TakeText() { return std::move(text_); }

 private:
  void Table(absl::string_view meaning, const Keys& keys) {
    if (!meaning.empty()) absl::StrAppend(&text_, "\n", meaning, "\n");
    bool is_first = true;
    for (const Key& key : keys) {
      if (!key.keys.empty() || !key.types.empty()) continue;
      if (is_first) {
        absl::StrAppend(&text_,
                        "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
        is_first = false;
      }
      absl::StrAppend(&text_, "| ", Code(key.name), " | ", key.value.type, " | ", Default(key),
                      " | ", Meaning(key), " |\n");
    }
  }

  void Types(absl::string_view path, const Key& key) {
    absl::StrAppend(&text_, "\n## ", Code(path), "\n\n", key.meaning, "\n\n| type | meaning |\n",
                    "| --- | --- |\n");
    for (const Key& type : key.types) {
      absl::StrAppend(&text_, "| ", Code(type.name), " | ", Meaning(type), " |\n");
    }
    if (!key.keys.empty()) Table("Beside `type` and `params`:", key.keys);
    for (const Key& type : key.types) {
      if (type.keys.empty()) continue;
      absl::StrAppend(&text_, "\n### ", Code(PathOf(path, "params")), " of ", Code(type.name),
                      "\n");
      Table("", type.keys);
    }
  }

  std::string text_;
};

}  // namespace

std::string KeyPage(const Keys& keys) {
  Page page;
  page.Section("", "", keys);
  return page.TakeText();
}

std::string ConfigurationPage() {
  Settings settings;
  return absl::StrCat(kIntroduction, KeyPage(ConfigKeys(settings)));
}

}  // namespace brigade::train
