/// @file
/// What the system says of a process. Linux.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gradweave::tests {

/// The words of /proc/ID/stat behind the process's name: its state, its parent, ... None where there is no such process,
/// which it may have ceased to be at any moment.
inline std::vector<std::string> process_status(const std::string& id) {
  std::ifstream in("/proc/" + id + "/stat");
  std::string text;
  std::getline(in, text);
  const std::size_t name_end = text.rfind(')');  // the name in parentheses may hold anything
  std::istringstream rest(text.substr(std::min(text.size(), name_end + 1)));
  std::vector<std::string> words;
  for (std::string word; rest >> word;) {
    words.push_back(word);
  }
  return words;
}

}  // namespace gradweave::tests
