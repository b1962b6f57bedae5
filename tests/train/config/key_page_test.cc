#include "brigade/train/config/key_page.h"

#include <optional>
#include <string>

#include "brigade/train/config/json_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

TEST(KeyPageTest, HasARowForEachKeyAndASectionForEachObject) {
  double number = 0.5;
  std::optional<std::string> text;
  int type = 0;
  const Keys keys = {
      {"number", Number(&number, {0.0, 1.0, "0 to 1"}), "how much"},
      {.name = "outer",
       .meaning = "What is inside.",
       .keys = {{.name = "text",
                 .value = Text(&text),
                 .meaning = "a name",
                 .required = "write one",
                 .also = "name"},
                {.name = "inner",
                 .meaning = "More.",
                 .keys = {{"old", Only(1, "one is enough")}}}}},
      {.name = "choice",
       .meaning = "One of them.",
       .keys = {{"beside", Tuning(false, "it is fast")}},
       .types = {{"Round", Set(&type, 1), "a circle", {{"radius", Either(2, "both are right")}}},
                 {"Square", NotSupported("write Round")}}},
      {"off", Off("no")},
      {"last", Otherwise(Text(&text), "as the first"), ""},
  };
  EXPECT_EQ(KeyPage(keys), R"(
| key | type | default | meaning |
| --- | --- | --- | --- |
| `number` | a number, 0 to 1 | `0.5` | how much |
| `off` | an object that says "enabled": false | off | accepted when it is off; not supported: no |
| `last` | a text that is not empty | as the first |  |

## `outer`

What is inside.

| key | type | default | meaning |
| --- | --- | --- | --- |
| `text` | a text that is not empty | must be given | a name; also `name` |

## `outer.inner`

More.

| key | type | default | meaning |
| --- | --- | --- | --- |
| `old` | only 1 | `1` | any other value is refused: one is enough |

## `choice`

One of them.

| type | meaning |
| --- | --- |
| `Round` | a circle |
| `Square` | refused: not supported: write Round |

Beside `type` and `params`:

| key | type | default | meaning |
| --- | --- | --- | --- |
| `beside` | true or false | `false` | without effect: it is fast |

### `choice.params` of `Round`

| key | type | default | meaning |
| --- | --- | --- | --- |
| `radius` | a number | `2` | either is accepted: both are right |
)");
}

}  // namespace
}  // namespace brigade::train
