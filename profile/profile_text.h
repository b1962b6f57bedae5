#ifndef BRIGADE_PROFILE_PROFILE_TEXT_H_
#define BRIGADE_PROFILE_PROFILE_TEXT_H_

#include <string>

#include "brigade/profile/options.h"
#include "brigade/profile/step_profile.h"

namespace brigade::profile {

// The profile as tables, for people; tools/plot_profile.sh reads them too:
//
//   the step: parameters, operations, seconds of passes, MFU and HFU, ceilings;
//   "Modules": the largest ones of each depth (Options::module_depth, top_modules);
//   and with Options::detailed
//   "Units": what each takes, reaches, and is limited by;
//   "Kernels": calls, time, bytes and operations of each, beside the roofline;
//   "Collectives": bytes sent, and their bandwidth.
//
// Rates are those of one rank: sums over ranks by sums over ranks. A rate whose ceiling is not
// known has no share.
std::string ProfileText(const StepProfile& profile, const Options& options);

// A line for a report: MFU, HFU, and what the step was limited by.
std::string ProfileLine(const StepProfile& profile);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_PROFILE_TEXT_H_
