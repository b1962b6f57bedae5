#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_FIELDS_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::collectives {

// A list of strings, which may hold anything, as one string: what a message between ranks or a
// value in a store is made of.
std::string PackFields(const std::vector<std::string>& fields);

// The list again. InvalidArgument for a string that PackFields does not make of at least one field.
absl::StatusOr<std::vector<std::string>> UnpackFields(absl::string_view packed);

// The error that another process tells by its code, and what it says, made printable; Unknown for a
// number that is no error's.
absl::Status ErrorOfCode(int code, absl::string_view message);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_FIELDS_H_
