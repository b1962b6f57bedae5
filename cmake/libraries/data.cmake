# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  data_tokenizers_tokenizer
  HEADERS data/tokenizers/tokenizer.h
  PUBLIC_LIBRARIES absl::span absl::status absl::strings
)

brigade_library(
  data_tokenizers_unicode_classes
  HEADERS data/tokenizers/unicode_classes.h data/tokenizers/unicode_ranges.h
  SOURCES data/tokenizers/unicode_classes.cc data/tokenizers/unicode_ranges.cc
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  data_tokenizers_utf8
  HEADERS data/tokenizers/utf8.h
  SOURCES data/tokenizers/utf8.cc
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  data_tokenizers_added_tokens
  HEADERS data/tokenizers/added_tokens.h
  SOURCES data/tokenizers/added_tokens.cc
  DEPS data_tokenizers_tokenizer data_tokenizers_unicode_classes data_tokenizers_utf8
  PUBLIC_LIBRARIES absl::flat_hash_map absl::function_ref absl::strings
)

brigade_library(
  data_tokenizers_bpe_model
  HEADERS data/tokenizers/bpe_model.h
  SOURCES data/tokenizers/bpe_model.cc
  DEPS device_printable
  PUBLIC_LIBRARIES absl::flat_hash_map absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::span
)

brigade_library(
  data_tokenizers_split_pattern
  HEADERS data/tokenizers/split_pattern.h
  SOURCES data/tokenizers/split_pattern.cc
  DEPS data_tokenizers_unicode_classes data_tokenizers_utf8
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  data_tokenizers_bpe_tokenizer
  HEADERS data/tokenizers/bpe_tokenizer.h
  SOURCES data/tokenizers/bpe_tokenizer.cc
  DEPS data_tokenizers_added_tokens data_tokenizers_bpe_model data_tokenizers_split_pattern
    data_tokenizers_tokenizer data_tokenizers_utf8 device_printable device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::flat_hash_map absl::memory absl::strings
)

brigade_library(
  data_tokenizers_byte_symbols
  HEADERS data/tokenizers/byte_symbols.h
  SOURCES data/tokenizers/byte_symbols.cc
  DEPS data_tokenizers_utf8
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  data_tokenizers_bpe_training
  HEADERS data/tokenizers/bpe_training.h
  SOURCES data/tokenizers/bpe_training.cc
  DEPS data_tokenizers_bpe_tokenizer data_tokenizers_byte_symbols data_tokenizers_split_pattern
    data_tokenizers_utf8 device_printable device_status_macros
  PUBLIC_LIBRARIES absl::flat_hash_map absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::span
)

brigade_library(
  data_tokenizers_byte_tokenizer
  HEADERS data/tokenizers/byte_tokenizer.h
  SOURCES data/tokenizers/byte_tokenizer.cc
  DEPS data_tokenizers_tokenizer
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_tokenizers_tokenizer_json
  HEADERS data/tokenizers/tokenizer_json.h
  SOURCES data/tokenizers/tokenizer_json.cc data/tokenizers/tokenizer_json_writer.cc
  DEPS data_tokenizers_bpe_tokenizer data_tokenizers_byte_symbols checkpoint_strict_json
    device_files device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
  PRIVATE_LIBRARIES absl::flat_hash_map nlohmann_json::nlohmann_json
)

brigade_library(
  data_bad_data
  HEADERS data/bad_data.h
  SOURCES data/bad_data.cc
  DEPS device_printable
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  data_chat_template
  HEADERS data/chat_template.h
  SOURCES data/chat_template.cc
  DEPS device_requirements data_bad_data checkpoint_strict_json device_files device_printable
    device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  data_dataset
  HEADERS data/dataset.h
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  data_line_reader
  HEADERS data/line_reader.h
  SOURCES data/line_reader.cc
  DEPS device_files device_status_macros
  PUBLIC_LIBRARIES absl::statusor absl::strings
)

brigade_library(
  data_line_sample
  HEADERS data/line_sample.h
  SOURCES data/line_sample.cc
  DEPS data_chat_template checkpoint_strict_json device_printable
  PUBLIC_LIBRARIES absl::status absl::strings
)

brigade_library(
  data_packing
  HEADERS data/packing.h
  SOURCES data/packing.cc
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  data_token_store
  HEADERS data/token_store.h
  SOURCES data/token_store.cc
  PUBLIC_LIBRARIES absl::span
)

brigade_library(
  data_row_writer
  HEADERS data/row_writer.h
  SOURCES data/row_writer.cc
  DEPS data_dataset data_token_store
  PUBLIC_LIBRARIES absl::span absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_source_files
  HEADERS data/source_files.h
  SOURCES data/source_files.cc
  DEPS data_bad_data device_files device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  data_line_dataset
  HEADERS data/line_dataset.h
  SOURCES data/line_dataset.cc
  DEPS device_requirements data_bad_data data_chat_template data_dataset data_line_reader
    data_line_sample data_packing data_row_writer data_source_files data_token_store
    data_tokenizers_tokenizer device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::memory absl::strings
)

brigade_library(
  data_prefetcher
  HEADERS data/prefetcher.h
  DEPS device_requirements device_threads_mutex device_threads_start_thread
  PUBLIC_LIBRARIES absl::core_headers absl::status absl::statusor
)

brigade_library(
  data_permutation
  HEADERS data/permutation.h
  SOURCES data/permutation.cc
)

brigade_library(
  data_sampler
  HEADERS data/sampler.h
  SOURCES data/sampler.cc
  DEPS device_requirements data_permutation
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_samples
  HEADERS data/samples.h
  DEPS device_requirements
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  data_loader
  HEADERS data/loader.h
  SOURCES data/loader.cc
  DEPS device_requirements data_prefetcher data_sampler data_samples device_files device_round_up
    device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_utf8_lines
  HEADERS data/utf8_lines.h
  SOURCES data/utf8_lines.cc
  DEPS data_bad_data data_tokenizers_utf8 device_status_macros
  PUBLIC_LIBRARIES absl::status
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_text_dataset
  HEADERS data/text_dataset.h
  SOURCES data/text_dataset.cc
  DEPS device_requirements data_bad_data data_dataset data_row_writer data_source_files
    data_token_store data_utf8_lines data_tokenizers_tokenizer device_files device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::memory absl::strings
)

brigade_library(
  data_open
  HEADERS data/open.h
  SOURCES data/open.cc
  DEPS data_bad_data data_chat_template data_dataset data_line_dataset data_line_sample
    data_source_files data_text_dataset data_tokenizers_byte_tokenizer data_tokenizers_tokenizer
    data_tokenizers_tokenizer_json device_status_macros
  PUBLIC_LIBRARIES absl::statusor
  PRIVATE_LIBRARIES absl::strings
)

brigade_library(
  data_token_samples
  HEADERS data/token_samples.h
  SOURCES data/token_samples.cc
  DEPS data_dataset data_samples device_requirements device_status_macros
  PUBLIC_LIBRARIES absl::span absl::status
)

brigade_library(
  data_tokenizer_text
  HEADERS data/tokenizer_text.h
  SOURCES data/tokenizer_text.cc
  DEPS data_bad_data data_line_reader data_line_sample data_source_files data_utf8_lines
    device_files device_status_macros
  PUBLIC_LIBRARIES absl::function_ref absl::status absl::strings
)

brigade_library(
  data
  DEPS data_bad_data data_chat_template data_dataset data_line_dataset data_line_reader
    data_line_sample data_loader data_open data_packing data_permutation data_prefetcher
    data_row_writer data_sampler data_samples data_source_files data_text_dataset data_token_samples
    data_token_store data_tokenizer_text data_utf8_lines
)
