#include "examples/digits_training.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>

#include "examples/digits_data.hpp"
#include "examples/digits_options.hpp"
#include "examples/mlp.hpp"
#include "tests/support/brief.hpp"
#include "tests/support/environment.hpp"

namespace gw = gradweave;

namespace {

const digits::image_set& all_images() {
  static const digits::image_set images = digits::load_images(digits::find_data("", ""));
  return images;
}

/// Trains on `ranks` threads; a rank that hangs ends the test by its deadline.
std::vector<digits::training_result> train_on(int ranks, const digits::image_set& images,
                                              const digits::training_options& options) {
  std::vector<std::optional<digits::training_result>> results(static_cast<std::size_t>(ranks));
  gw::backend::run_loopback(ranks,
                            [&](gw::backend::loopback backend) {
                              const auto rank = static_cast<std::size_t>(backend.rank());
                              results[rank] = digits::train(std::move(backend), images, options);
                            },
                            {.timeout = std::chrono::minutes(1)});
  std::vector<digits::training_result> done;
  for (auto& result : results) {
    done.push_back(std::move(*result));
  }
  return done;
}

digits::command_line parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "digits");
  return digits::parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

/// What the program says to these arguments.
std::string complaint(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const digits::usage_error& wrong) {
    return wrong.what();
  }
  return "";
}

std::string data_complaint(const std::string& text) {
  std::istringstream stream(text);
  try {
    digits::read_images(stream, "some.csv");
  } catch (const digits::data_error& wrong) {
    return wrong.what();
  }
  return "";
}

/// A line of the file: 64 pixels `pixel`, then `label`.
std::string line_of(const std::string& pixel, const std::string& label) {
  std::string line;
  for (std::size_t i = 0; i < digits::pixels; ++i) {
    line += pixel + ",";
  }
  return line + label + "\n";
}

std::string description_of(const auto& policy) {
  gw::description said;
  policy.describe(said);
  std::string text;
  for (const auto& [key, value] : said.entries()) {
    text += (text.empty() ? "" : ", ") + key + "=" + value;
  }
  return text;
}

}  // namespace

TEST_CASE("digits: reads at least 96 % of held-out images right, on average over five seeds") {
  const std::vector<std::pair<std::string, digits::compression_choice>> compressions = {
      {"none", gw::compression::none{}}, {"fp16", gw::compression::fp16{}}, {"bf16", gw::compression::bf16{}}};
  const std::uint64_t seeds = gw::tests::repetitions(5);
  for (const auto& [name, compression] : compressions) {
    for (const int ranks : gw::tests::world_sizes({1, 2, 3, 4})) {
      double sum = 0;
      double lowest = 1;
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const digits::split_images parts = digits::hold_out_a_fifth(all_images(), seed);
        digits::training_options options;
        options.seed = seed;
        options.compression = compression;
        const std::vector<digits::training_result> done = train_on(ranks, parts.training, options);
        digits::mlp model = done.front().model;
        const double accuracy = model.accuracy(parts.held_out.pixel_values, parts.held_out.labels);
        CHECK(done.front().skipped == 0);
        sum += accuracy;
        lowest = std::min(lowest, accuracy);
      }
      MESSAGE(name << ", " << ranks << " ranks: mean accuracy " << 100 * sum / static_cast<double>(seeds)
                   << " %, lowest " << 100 * lowest << " %");
      CHECK(sum / static_cast<double>(seeds) >= 0.96);
    }
  }
}

TEST_CASE("digits: the loss on several ranks follows that of one rank on the same global batch") {
  // Sums of float32 in another order; the difference grows as training amplifies it. Measured on x86-64: 2.2e-7.
  constexpr double tolerance = 5e-6;
  const digits::split_images parts = digits::hold_out_a_fifth(all_images(), 7);
  digits::training_options options;
  options.seed = 7;
  options.steps_max = 50;
  const std::vector<double> alone = train_on(1, parts.training, options).front().losses;
  REQUIRE(alone.size() == 50);
  CHECK(alone.back() < alone.front() / 2);  // it does learn
  for (const int ranks : gw::tests::world_sizes({2, 3, 4})) {
    CAPTURE(ranks);
    const std::vector<digits::training_result> done = train_on(ranks, parts.training, options);
    double largest_difference = 0;
    for (std::size_t step = 0; step < alone.size(); ++step) {
      double loss = 0;  // the mean of equal shards' means is the batch's mean
      for (const digits::training_result& rank : done) {
        loss += rank.losses[step] / ranks;
      }
      largest_difference = std::max(largest_difference, std::abs(loss - alone[step]));
    }
    MESSAGE(ranks << " ranks: largest difference of the loss in 50 steps " << largest_difference);
    CHECK(largest_difference <= tolerance);
  }
}

TEST_CASE("digits: all ranks end with the same bits, whatever the policies") {
  const digits::split_images parts = digits::hold_out_a_fifth(all_images(), 11);
  struct choice {
    digits::compression_choice compression;
    digits::overlap_choice overlap;
    digits::bucketing_choice bucketing;
  };
  constexpr gw::bucketing::bucket_caps small{.bucket_bytes_max = 1 << 10, .first_bucket_bytes_max = 1 << 10};
  const std::vector<choice> choices = {
      {gw::compression::none{}, gw::overlap::blocking{}, gw::bucketing::per_tensor{}},
      {gw::compression::fp16{}, gw::overlap::progress_thread{}, gw::bucketing::fixed_bytes{small}},
      {gw::compression::bf16{}, gw::overlap::progress_thread{}, gw::bucketing::ready_order{small}},
  };
  for (const choice& chosen : choices) {
    for (const int ranks : gw::tests::world_sizes({2, 3, 4})) {
      CAPTURE(ranks);
      digits::training_options options;
      options.seed = 11;
      options.steps_max = 30;
      options.compression = chosen.compression;
      options.overlap = chosen.overlap;
      options.bucketing = chosen.bucketing;
      const std::vector<digits::training_result> done = train_on(ranks, parts.training, options);
      for (const digits::training_result& rank : done) {
        for (std::size_t i = 0; i < rank.model.parameters().size(); ++i) {
          const std::vector<float>& value = rank.model.parameters()[i].value;
          const std::vector<float>& first = done.front().model.parameters()[i].value;
          CHECK(std::equal(value.begin(), value.end(), first.begin(), first.end()));  // no NaN, no -0 against 0
        }
        CHECK(rank.losses.size() == 30);
      }
    }
  }
}

TEST_CASE("digits: the 16-bit formats halve what travels") {
  const digits::split_images parts = digits::hold_out_a_fifth(all_images(), 3);
  digits::training_options options;
  options.steps_max = 10;
  const auto bytes_on_wire = [&](digits::compression_choice compression) {
    options.compression = compression;
    double bytes = 0;
    for (const digits::training_result& rank : train_on(2, parts.training, options)) {
      bytes += static_cast<double>(rank.statistics.bytes_on_wire);
    }
    return bytes;
  };
  const double uncompressed = bytes_on_wire(gw::compression::none{});
  CHECK(bytes_on_wire(gw::compression::fp16{}) / uncompressed == doctest::Approx(0.5).epsilon(0.02));
  CHECK(bytes_on_wire(gw::compression::bf16{}) / uncompressed == doctest::Approx(0.5).epsilon(0.02));
}

TEST_CASE("digits: a rank that fails ends the training on all ranks, and its own exception comes out") {
  const digits::split_images parts = digits::hold_out_a_fifth(all_images(), 1);
  const digits::training_options options;
  const auto fail_on_rank_1 = [&](gw::backend::loopback backend) {
    const bool fails = backend.rank() == 1;
    digits::train(std::move(backend), parts.training, options, [&](const digits::progress& now) {
      if (fails && now.step == 3) {
        throw std::runtime_error("out of paper");
      }
    });
  };
  CHECK_THROWS_WITH_AS(gw::backend::run_loopback(3, fail_on_rank_1, {.timeout = std::chrono::minutes(1)}),
                       "out of paper", std::runtime_error);
}

TEST_CASE("digits: shards are equal, and what does not fill a batch is left out") {
  CHECK(digits::work_division(1438, 60, 1).steps_per_epoch == 23);
  CHECK(digits::work_division(1438, 60, 3).shard == 20);
  CHECK(digits::work_division(1438, 60, 7).shard == 8);  // 56 images a step
  CHECK(digits::work_division(1438, 60, 7).steps_per_epoch == 25);
  CHECK_THROWS_AS(digits::work_division(1438, 60, 61), gw::contract_violation);
  CHECK_THROWS_AS(digits::work_division(59, 60, 2), gw::contract_violation);
}

TEST_CASE("digits: gradients are the derivatives of the loss") {
  digits::mlp model({3, 4, 2}, 5);
  const std::vector<float> inputs = {0.5f, -1.0f, 0.25f, 1.0f, 0.75f, -0.5f};
  const std::vector<std::uint8_t> labels = {1, 0};
  std::vector<std::size_t> order;
  model.forward(inputs, labels);
  model.backward(labels, [&](std::size_t index) { order.push_back(index); });
  CHECK(order == std::vector<std::size_t>{3, 2, 1, 0});
  for (digits::parameter& each : model.parameters()) {
    for (std::size_t i = 0; i < each.value.size(); ++i) {
      CAPTURE(each.name);
      CAPTURE(i);
      const float kept = each.value[i];
      constexpr float h = 1e-2f;
      each.value[i] = kept + h;
      const double above = model.forward(inputs, labels);
      each.value[i] = kept - h;
      const double below = model.forward(inputs, labels);
      each.value[i] = kept;
      CHECK(static_cast<double>(each.gradient[i]) == doctest::Approx((above - below) / (2 * h)).epsilon(1e-3));
    }
  }
}

TEST_CASE("digits: a fifth is held out, the same for every rank, and no image twice") {
  CHECK(all_images().size() == 1797);
  const digits::split_images parts = digits::hold_out_a_fifth(all_images(), 1);
  CHECK(parts.held_out.size() == 359);
  CHECK(parts.training.size() == 1438);
  const digits::split_images again = digits::hold_out_a_fifth(all_images(), 1);
  CHECK(parts.held_out.pixel_values == again.held_out.pixel_values);
  CHECK(parts.held_out.pixel_values != digits::hold_out_a_fifth(all_images(), 2).held_out.pixel_values);
  std::vector<std::size_t> order = digits::shuffled(100, 9);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    CHECK(order[i] == i);
  }
}

TEST_CASE("digits: malformed data is refused with the place") {
  const std::string good = "# a comment\n" + line_of("3", "7");
  CHECK(data_complaint(good) == "");
  CHECK(data_complaint("# a comment\r\n\r\n" + line_of("16", "0")) == "");
  CHECK(data_complaint("") == "some.csv: holds no images");
  CHECK(data_complaint(good + "1,2,3\n") == "some.csv:3: 3 values; a line holds 64 pixels, then the digit");
  CHECK(data_complaint(good + line_of("0", "1,1")) ==
        "some.csv:3: more than 65 values; a line holds 64 pixels, then the digit");
  CHECK(data_complaint(good + line_of("17", "1")) ==
        "some.csv:3: value 1 is '17'; a pixel is a whole number from 0 to 16");
  CHECK(data_complaint(good + line_of("-1", "1")) ==
        "some.csv:3: value 1 is '-1'; a pixel is a whole number from 0 to 16");
  CHECK(data_complaint(good + line_of("0", "10")) ==
        "some.csv:3: value 65 is '10'; the digit is a whole number from 0 to 9");
  CHECK(data_complaint(good + line_of("0", "")) ==
        "some.csv:3: value 65 is ''; the digit is a whole number from 0 to 9");
  CHECK(data_complaint(good + line_of("0", "1x")) ==
        "some.csv:3: value 65 is '1x'; the digit is a whole number from 0 to 9");
  CHECK(data_complaint(good + line_of("99999999999", "1")) ==
        "some.csv:3: value 1 is '99999999999'; a pixel is a whole number from 0 to 16");
}

TEST_CASE("digits: data that is missing is refused with the places") {
  CHECK_THROWS_WITH_AS(digits::find_data("no/such.csv", ""), doctest::Contains("no/such.csv: there is no such file"),
                       digits::data_error);
  CHECK_THROWS_AS(digits::load_images("no/such.csv"), digits::data_error);
  CHECK_THROWS_AS(digits::load_images("."), digits::data_error);  // a folder
}

TEST_CASE("digits: options have defaults") {
  const digits::command_line parsed = parse({});
  CHECK(parsed.ranks == 2);
  CHECK(parsed.training.compression == gw::compression::none{});
  CHECK(parsed.training.overlap == gw::overlap::progress_thread{});
  CHECK(parsed.training.bucketing == gw::bucketing::ready_order{});
  CHECK_FALSE(parsed.help);
}

TEST_CASE("digits: options arrive") {
  const digits::command_line parsed =
      parse({"--ranks", "3", "--compression=bf16", "--overlap", "blocking", "--bucketing", "fixed_bytes",
             "--bucket-mib", "0.5", "--epochs", "4", "--seed", "18446744073709551615", "--data", "here.csv"});
  CHECK(parsed.ranks == 3);
  CHECK(parsed.training.compression == gw::compression::bf16{});
  CHECK(parsed.training.overlap == gw::overlap::blocking{});
  CHECK(description_of(parsed.training.bucketing) ==
        "name=fixed_bytes, bucket_bytes_max=524288, first_bucket_bytes_max=524288");
  CHECK(parsed.training.epochs == 4);
  CHECK(parsed.training.seed == UINT64_MAX);
  CHECK(parsed.data == "here.csv");
}

TEST_CASE("digits: --help lists the options and their values") {
  const std::string help = parse({"--help"}).help.value_or("");
  for (const char* word : {"--ranks", "--compression", "none", "fp16", "bf16", "--overlap", "blocking",
                           "progress_thread", "--bucketing", "per_tensor", "fixed_bytes", "ready_order", "--bucket-mib",
                           "DISTRIBUTED_BUCKET_SIZE", "--epochs", "--seed", "--data", "--help"}) {
    CAPTURE(word);
    CHECK(help.find(word) != std::string::npos);
  }
}

TEST_CASE("digits: a wrong option is refused in one line that lists what is allowed") {
  struct refused {
    std::vector<const char*> arguments;
    const char* answer;
  };
  const std::vector<refused> table = {
      {{"--ranks", "0"}, "--ranks: '0' is not allowed; give a whole number from 1 to 60 (see --help)"},
      {{"--ranks", "61"}, "--ranks: '61' is not allowed; give a whole number from 1 to 60 (see --help)"},
      {{"--ranks", "two"}, "--ranks: 'two' is not allowed; give a whole number from 1 to 60 (see --help)"},
      {{"--ranks=2.5"}, "--ranks: '2.5' is not allowed; give a whole number from 1 to 60 (see --help)"},
      {{"--compression", "zip"}, "--compression: 'zip' is not allowed; give none, fp16 or bf16 (see --help)"},
      {{"--overlap", "stream"}, "--overlap: 'stream' is not allowed; give blocking or progress_thread (see --help)"},
      {{"--bucketing", "x"},
       "--bucketing: 'x' is not allowed; give per_tensor, fixed_bytes or ready_order (see --help)"},
      {{"--bucket-mib", "0"},
       "--bucket-mib: '0' is not allowed; give a number of MiB from 0.000001 to 1024 (see --help)"},
      {{"--bucket-mib", "nan"},
       "--bucket-mib: 'nan' is not allowed; give a number of MiB from 0.000001 to 1024 (see --help)"},
      {{"--bucket-mib", "1", "--bucketing", "per_tensor"},
       "--bucket-mib: has no meaning with --bucketing per_tensor; choose fixed_bytes or ready_order"},
      {{"--epochs", "0"}, "--epochs: '0' is not allowed; give a whole number from 1 to 1000000 (see --help)"},
      {{"--seed", "-1"}, "--seed: '-1' is not allowed; give a whole number from 0 to 2^64 - 1 (see --help)"},
      {{"--speed"}, "The following argument was not expected: --speed (see --help)"},
      {{"--ranks"}, "--ranks: 1 required N missing (see --help)"},
  };
  for (const refused& each : table) {
    CHECK(complaint(each.arguments) == each.answer);
  }
}

TEST_CASE("digits: --bucket-mib wins over the environment, and the environment over the default") {
  const gw::tests::scoped_variable four("DISTRIBUTED_BUCKET_SIZE", "4");
  CHECK(description_of(parse({}).training.bucketing) ==
        "name=ready_order, bucket_bytes_max=4194304, first_bucket_bytes_max=1048576");
  CHECK(description_of(parse({"--bucket-mib", "2"}).training.bucketing) ==
        "name=ready_order, bucket_bytes_max=2097152, first_bucket_bytes_max=1048576");
}

TEST_CASE("digits: a malformed environment variable is refused before training begins") {
  const gw::tests::scoped_variable malformed("DISTRIBUTED_BUCKET_SIZE", "much");
  CHECK(complaint({}).find("DISTRIBUTED_BUCKET_SIZE is 'much'") != std::string::npos);
  CHECK(complaint({"--bucket-mib", "1"}) == "");
}
