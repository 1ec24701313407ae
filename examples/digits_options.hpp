/// @file
/// The command line of examples/digits.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <gradweave/gradweave.hpp>
#include <gradweave/launch.hpp>

#include "examples/digits_training.hpp"

namespace digits {

/// The command line, or the environment, holds something that is not allowed. what() is one line that lists what is.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class backend_choice { tcp, mpi, loopback };

/// What the command line says.
struct command_line {
  training_options training;
  backend_choice backend = backend_choice::tcp;
  int ranks = 2;                    ///< to be started
  std::string data;                 ///< empty: look for it
  std::optional<std::string> help;  ///< set where the user asks for help instead
};

namespace detail {

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  }
  return text;
}

inline std::string refusal(std::string_view given, const std::string& allowed) {
  return "'" + std::string(given) + "' is not allowed; give " + allowed;
}

/// Lets one of `words` pass.
inline CLI::Validator one_word_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words](const std::string& given) {
        const bool known = std::find(words.begin(), words.end(), given) != words.end();
        return known ? std::string() : refusal(given, joined(words));
      },
      "");
}

/// Lets numbers from `lowest` to `highest` pass; `what` says that in words.
template <class Number>
CLI::Validator number_within(Number lowest, Number highest, const std::string& what) {
  return CLI::Validator(
      [=](const std::string& given) {
        Number value{};
        const char* const end = given.data() + given.size();
        const auto [parsed_to, fault] = std::from_chars(given.data(), end, value);
        const bool right = fault == std::errc{} && parsed_to == end && lowest <= value && value <= highest;
        return right ? std::string() : refusal(given, what);
      },
      "");
}

inline compression_choice choose_compression(const std::string& name) {
  if (name == "fp16") {
    return gw::compression::fp16{};
  }
  if (name == "bf16") {
    return gw::compression::bf16{};
  }
  return gw::compression::none{};
}

inline overlap_choice choose_overlap(const std::string& name) {
  if (name == "blocking") {
    return gw::overlap::blocking{};
  }
  return gw::overlap::progress_thread{};
}

/// `bucket_mib` is empty where the option was not given: then the environment has a say.
inline bucketing_choice choose_bucketing(const std::string& name, std::optional<double> bucket_mib) {
  if (name == "per_tensor") {
    if (bucket_mib) {
      throw usage_error("--bucket-mib: has no meaning with --bucketing per_tensor; choose fixed_bytes or ready_order");
    }
    return gw::bucketing::per_tensor{};
  }
  gw::bucketing::bucket_caps caps;
  if (bucket_mib) {
    caps.bucket_bytes_max = std::max<std::size_t>(1, static_cast<std::size_t>(*bucket_mib * double{1 << 20}));
    caps.first_bucket_bytes_max = std::min(caps.first_bucket_bytes_max, caps.bucket_bytes_max);
  } else {
    try {
      caps = caps.with_environment();
    } catch (const gw::contract_violation& malformed) {
      throw usage_error(malformed.what());
    }
  }
  if (name == "fixed_bytes") {
    return gw::bucketing::fixed_bytes{caps};
  }
  return gw::bucketing::ready_order{caps};
}

}  // namespace detail

/// Reads the command line. Throws usage_error. Starts nothing.
inline command_line parse_command_line(int count, const char* const* arguments) {
  command_line parsed;
  std::string backend = "tcp";
  std::string compression = "none";
  std::string overlap = "progress_thread";
  std::string bucketing = "ready_order";
  double bucket_mib = 25;

  CLI::App app(
      "Trains a small multilayer perceptron to read handwritten digits. Each rank works on its share of every batch, "
      "and\n"
      "gradweave averages their gradients. Started by torchrun, mpirun or Slurm, it is a rank of their job.",
      "digits");
  const auto ranks_max = static_cast<int>(parsed.training.global_batch);
  const CLI::Option* ranks_option =
      app.add_option(
             "--ranks", parsed.ranks,
             "Workers that share each batch, 1 to 60; default 2. Where a launcher started them, it says how many")
          ->type_name("N")
          ->check(detail::number_within(1, ranks_max, "a whole number from 1 to " + std::to_string(ranks_max)));
  app.add_option("--backend", backend,
                 "What ranks are: tcp (default; processes), mpi (processes that mpirun starts; in digits_mpi) or\n"
                 "loopback (threads of this process)")
      ->type_name("NAME")
      ->check(detail::one_word_of({"tcp", "mpi", "loopback"}));
  app.add_option("--compression", compression, "What gradients travel as: none (default), fp16 or bf16")
      ->type_name("NAME")
      ->check(detail::one_word_of({"none", "fp16", "bf16"}));
  app.add_option("--overlap", overlap,
                 "When they travel: blocking (at the end of the step) or progress_thread (default; during\n"
                 "the backward pass, as soon as a bucket is complete)")
      ->type_name("NAME")
      ->check(detail::one_word_of({"blocking", "progress_thread"}));
  app.add_option("--bucketing", bucketing,
                 "Which travel together: per_tensor (each alone), fixed_bytes (up to a size) or ready_order\n"
                 "(default; up to a size, in the order in which the first step computed them)")
      ->type_name("NAME")
      ->check(detail::one_word_of({"per_tensor", "fixed_bytes", "ready_order"}));
  const CLI::Option* bucket_option =
      app.add_option("--bucket-mib", bucket_mib,
                     "The size at which a bucket is closed, in MiB; default 25. Wins over the environment variable\n"
                     "DISTRIBUTED_BUCKET_SIZE, which wins over the default. This model's gradients are 14 KiB in\n"
                     "all, and so one bucket; 0.001 makes several")
          ->type_name("MIB")
          ->check(detail::number_within(1e-6, 1024.0, "a number of MiB from 0.000001 to 1024"));
  app.add_option("--epochs", parsed.training.epochs, "Passes over the images; default 15")
      ->type_name("N")
      ->check(detail::number_within<std::size_t>(1, 1'000'000, "a whole number from 1 to 1000000"));
  app.add_option("--seed", parsed.training.seed,
                 "Decides which images are held out, their order, and the first weights; default 1")
      ->type_name("N")
      ->check(detail::number_within<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max(),
                                                   "a whole number from 0 to 2^64 - 1"));
  app.add_option("--data", parsed.data, "The file digits.csv, if it is not where the program looks")->type_name("FILE");

  try {
    app.parse(count, arguments);
  } catch (const CLI::CallForHelp&) {
    parsed.help = app.help();
    return parsed;
  } catch (const CLI::ParseError& fault) {
    throw usage_error(std::string(fault.what()) + " (see --help)");
  }
  parsed.backend = backend == "tcp"   ? backend_choice::tcp
                   : backend == "mpi" ? backend_choice::mpi
                                      : backend_choice::loopback;
  if (parsed.backend == backend_choice::mpi && ranks_option->count() > 0) {
    throw usage_error("--ranks: mpirun says how many ranks there are; leave it out, and call mpirun -n " +
                      std::to_string(parsed.ranks));
  }
  if (gw::is_launched() && parsed.backend == backend_choice::loopback) {
    throw usage_error("--backend: a launcher started this process as one of several; give tcp or mpi");
  }
  // The launcher that digits itself is passes its arguments on.
  const char* const launched_size = std::getenv("WORLD_SIZE");
  if (gw::is_launched() && ranks_option->count() > 0 &&
      (launched_size == nullptr || launched_size != std::to_string(parsed.ranks))) {
    throw usage_error("--ranks: a launcher started this process, and says how many there are; leave it out");
  }
  parsed.training.compression = detail::choose_compression(compression);
  parsed.training.overlap = detail::choose_overlap(overlap);
  parsed.training.bucketing =
      detail::choose_bucketing(bucketing, bucket_option->count() > 0 ? std::optional(bucket_mib) : std::nullopt);
  return parsed;
}

}  // namespace digits
