// Replays the corpora of the fuzz targets, and thousands of changed copies of them, under every compiler.
#include "tests/fuzz/targets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

struct corpus_file {
  std::string name;
  std::vector<std::byte> bytes;
};

std::vector<corpus_file> corpus_of(const std::string& target) {
  std::vector<corpus_file> files;
  const std::filesystem::path folder = "tests/fuzz/corpus/" + target;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      const auto bytes = std::as_bytes(std::span(text));
      files.push_back({entry.path().filename().string(), {bytes.begin(), bytes.end()}});
    }
  }
  std::ranges::sort(files, {}, &corpus_file::name);
  return files;
}

/// What a target found wrong with an input, if anything. Memory of the input's size, so that AddressSanitizer sees a
/// byte read beyond it.
std::string fault_of(const fuzz::target& target, std::vector<std::byte> input) {
  input.shrink_to_fit();
  try {
    target.run(input);
    return "";
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

/// Sets, inserts, cuts out, repeats, or sets eight bytes to a length that nobody has.
void change(std::vector<std::byte>& bytes, std::mt19937& random) {
  const auto place = [&] { return static_cast<std::ptrdiff_t>(random() % (bytes.size() + 1)); };
  const auto [first, last] = std::minmax({place(), place()});
  switch (random() % 5) {
    case 0:
      if (!bytes.empty()) {
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      }
      break;
    case 1: bytes.insert(bytes.begin() + first, static_cast<std::byte>(random() % 3)); break;
    case 2: bytes.erase(bytes.begin() + first, bytes.begin() + last); break;
    case 3:
      if (bytes.size() < 4096) {
        const std::vector<std::byte> piece(bytes.begin() + first, bytes.begin() + last);
        bytes.insert(bytes.begin() + last, piece.begin(), piece.end());
      }
      break;
    default: {
      const std::uint64_t value = (std::uint64_t{1} << random() % 64) - random() % 2;
      for (std::size_t i = 0; i < 8 && static_cast<std::size_t>(first) + i < bytes.size(); ++i) {
        bytes[static_cast<std::size_t>(first) + i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
      }
    }
  }
}

}  // namespace

TEST_CASE("fuzz targets: every file of a corpus keeps its target's properties") {
  for (const fuzz::target& target : fuzz::targets) {
    CAPTURE(target.name);
    const auto files = corpus_of(target.name);
    CHECK_FALSE(files.empty());
    for (const corpus_file& file : files) {
      CAPTURE(file.name);
      CHECK(fault_of(target, file.bytes) == "");
    }
  }
}

TEST_CASE("fuzz targets: so does what is near to a file of a corpus") {
  constexpr int rounds = 3000;
  for (const fuzz::target& target : fuzz::targets) {
    const auto files = corpus_of(target.name);
    REQUIRE_FALSE(files.empty());
    for (std::uint32_t seed = 0; seed < rounds; ++seed) {
      std::mt19937 random(seed);
      const corpus_file& file = files[random() % files.size()];
      std::vector<std::byte> bytes = file.bytes;
      for (auto changes = 1 + random() % 4; changes != 0; --changes) {
        change(bytes, random);
      }
      if (const std::string fault = fault_of(target, bytes); !fault.empty()) {
        FAIL_CHECK(target.name << ": seed " << seed << ", from " << file.name << ": " << fault);
        break;
      }
    }
  }
}

TEST_CASE("fuzz targets: each folder of the corpus belongs to one") {
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus")) {
    CAPTURE(entry.path());
    CHECK(std::ranges::any_of(fuzz::targets,
                              [&](const fuzz::target& target) { return entry.path().filename() == target.name; }));
  }
}
