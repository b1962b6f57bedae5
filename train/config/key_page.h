#ifndef BRIGADE_TRAIN_CONFIG_KEY_PAGE_H_
#define BRIGADE_TRAIN_CONFIG_KEY_PAGE_H_

#include <string>

#include "brigade/train/config/json_reader.h"

namespace brigade::train {

// Sections of Markdown about all keys of a table: those of its own, and then each object inside
// with its path, a row of a table for each key, with its type, its default and its meaning.
std::string KeyPage(const Keys& keys);

// docs/configuration.md: what precedes these sections, and KeyPage of the trainer's keys.
std::string ConfigurationPage();

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_KEY_PAGE_H_
