/// @file
/// A new folder that goes away with everything in it.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace gradweave::tests {

class scratch_folder {
 public:
  scratch_folder() {
    name_ = (std::filesystem::temp_directory_path() / "gradweave_test_XXXXXX").string();
    if (::mkdtemp(name_.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp");
    }
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(name_, ignored);
  }

  const std::string& path() const { return name_; }
  bool is_empty() const { return std::filesystem::is_empty(name_); }

  std::string path(const std::string& file) const { return name_ + "/" + file; }
  bool has(const std::string& file) const { return std::filesystem::exists(path(file)); }
  std::string read(const std::string& file) const {
    std::ifstream in(path(file), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  std::string name_;
};

}  // namespace gradweave::tests
