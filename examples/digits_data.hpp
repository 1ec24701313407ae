/// @file
/// The data of examples/digits: finds the file, reads it, checks it, and holds a part of it out.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <istream>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace digits {

/// The data file is missing or malformed. what() is one line that says where.
struct data_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t pixels = 64;   // 8 x 8, row by row
inline constexpr std::size_t classes = 10;  // the digits

/// Images and what they show: image i is pixel_values[i * pixels, (i + 1) * pixels), each from 0 to 1.
struct image_set {
  std::vector<float> pixel_values;
  std::vector<std::uint8_t> labels;

  std::size_t size() const { return labels.size(); }

  std::span<const float> image(std::size_t i) const { return std::span(pixel_values).subspan(i * pixels, pixels); }

  void add(std::span<const float> image, std::uint8_t label) {
    pixel_values.insert(pixel_values.end(), image.begin(), image.end());
    labels.push_back(label);
  }
};

/// What a model learns from, and what it has never seen.
struct split_images {
  image_set training;
  image_set held_out;
};

/// The numbers from 0 to count - 1 in an order that depends on `seed` only: std::shuffle may differ between standard
/// libraries, and then ranks would disagree on who works on what.
inline std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random() % left]);
  }
  return order;
}

namespace detail {

/// The comma-separated whole numbers of one line: 64 pixels from 0 to 16, then a digit. `where` begins each complaint.
inline std::array<int, pixels + 1> parse_line(std::string_view line, const std::string& where) {
  constexpr int pixel_max = 16;
  std::array<int, pixels + 1> values{};
  std::size_t column = 0;
  for (bool more = true; more; ++column) {
    const std::size_t comma = line.find(',');
    const std::string_view field = line.substr(0, comma);
    more = comma != std::string_view::npos;
    line.remove_prefix(more ? comma + 1 : line.size());
    if (column > pixels) {
      throw data_error(where + "more than 65 values; a line holds 64 pixels, then the digit");
    }
    const int largest = column < pixels ? pixel_max : static_cast<int>(classes) - 1;
    const auto [end, fault] = std::from_chars(field.data(), field.data() + field.size(), values[column]);
    if (fault != std::errc{} || end != field.data() + field.size() || values[column] < 0 || values[column] > largest) {
      throw data_error(where + "value " + std::to_string(column + 1) + " is '" + std::string(field) + "'; " +
                       (column < pixels ? "a pixel" : "the digit") + " is a whole number from 0 to " +
                       std::to_string(largest));
    }
  }
  if (column != pixels + 1) {
    throw data_error(where + std::to_string(column) + " values; a line holds 64 pixels, then the digit");
  }
  return values;
}

}  // namespace detail

/// Reads images; lines that begin with # are comments. `name` is what errors call the text. Throws data_error.
inline image_set read_images(std::istream& text, const std::string& name) {
  image_set images;
  std::string line;
  for (std::size_t number = 1; std::getline(text, line); ++number) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    if (line.empty() || line.starts_with('#')) {
      continue;
    }
    const auto values = detail::parse_line(line, name + ":" + std::to_string(number) + ": ");
    std::array<float, pixels> image;
    for (std::size_t i = 0; i < pixels; ++i) {
      image[i] = static_cast<float>(values[i]) / 16;
    }
    images.add(image, static_cast<std::uint8_t>(values[pixels]));
  }
  if (text.bad()) {
    throw data_error(name + ": reading failed");
  }
  if (images.size() == 0) {
    throw data_error(name + ": holds no images");
  }
  return images;
}

/// Reads the file at `path`. Throws data_error.
inline image_set load_images(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw data_error(path.string() + ": cannot be read");
  }
  return read_images(file, path.string());
}

/// Holds a fifth of the images out. Which ones depends on `seed` only, so ranks agree without a word.
inline split_images hold_out_a_fifth(const image_set& images, std::uint64_t seed) {
  split_images parts;
  const std::vector<std::size_t> order = shuffled(images.size(), seed);
  for (std::size_t i = 0; i < order.size(); ++i) {
    image_set& part = i < images.size() / 5 ? parts.held_out : parts.training;
    part.add(images.image(order[i]), images.labels[order[i]]);
  }
  return parts;
}

/// Where digits.csv lies: at `given` if that is not empty (relative to where the user stands, also under `bazel run`),
/// else among the program's runfiles, else below the present directory. Throws data_error that names the places.
inline std::filesystem::path find_data(const std::filesystem::path& given, const std::filesystem::path& program) {
  namespace fs = std::filesystem;
  const auto variable = [](const char* name) {
    return std::getenv(name) != nullptr ? fs::path(std::getenv(name)) : fs::path();
  };
  if (!given.empty()) {
    const fs::path path = variable("BUILD_WORKING_DIRECTORY") / given;  // bazel run changes the directory
    if (!fs::exists(path)) {
      throw data_error(path.string() + ": there is no such file");
    }
    return path;
  }
  const fs::path below_root = "examples/data/digits.csv";
  std::vector<fs::path> places;
  if (const fs::path runfiles = variable("RUNFILES_DIR"); !runfiles.empty()) {
    places.push_back(runfiles / "gradweave" / below_root);
  }
  places.push_back(fs::path(program.string() + ".runfiles") / "gradweave" / below_root);
  places.push_back(below_root);
  std::string looked;
  for (const fs::path& place : places) {
    if (fs::exists(place)) {
      return place;
    }
    looked += (looked.empty() ? "" : ", ") + place.string();
  }
  throw data_error("digits.csv is at none of " + looked + "; say where with --data FILE");
}

}  // namespace digits
