/// @file
/// JSON (RFC 8259) as values, strictly: what is not JSON throws. Strings keep their escapes as they stand.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gradweave::tests {

struct json {
  std::string text;  ///< of a string, a number or a word
  double number = 0;
  std::vector<json> items;
  std::map<std::string, json> members;

  const json& operator[](const std::string& key) const { return members.at(key); }
  bool has(const std::string& key) const { return members.count(key) != 0; }
};

class json_reader {
 public:
  static json read(std::string_view text) {
    json_reader reader{text};
    json value = reader.value();
    reader.space();
    if (!reader.rest_.empty()) {
      throw std::runtime_error("JSON: something stands behind the end");
    }
    return value;
  }

 private:
  explicit json_reader(std::string_view text) : rest_(text) {}

  void space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n\r\t"), rest_.size())); }

  bool takes(char expected) {
    space();
    if (rest_.empty() || rest_.front() != expected) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char expected) {
    if (!takes(expected)) {
      throw std::runtime_error(std::string("JSON: '") + expected + "' is missing before " +
                               std::string(rest_.substr(0, 40)));
    }
  }

  std::string string() {
    expect('"');
    std::size_t end = 0;
    for (; end < rest_.size() && rest_[end] != '"'; end += rest_[end] == '\\' ? 2 : 1) {
      if (static_cast<unsigned char>(rest_[end]) < 0x20) {
        throw std::runtime_error("JSON: a control character in a string");
      }
    }
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end, rest_.size()));
    expect('"');
    return text;
  }

  json value() {
    json read;
    if (takes('{')) {
      for (bool first = true; !takes('}'); first = false) {
        if (!first) {
          expect(',');
        }
        space();
        const std::string key = string();
        expect(':');
        if (!read.members.emplace(key, value()).second) {
          throw std::runtime_error("JSON: two members " + key);
        }
      }
    } else if (takes('[')) {
      for (bool first = true; !takes(']'); first = false) {
        if (!first) {
          expect(',');
        }
        read.items.push_back(value());
      }
    } else if (!rest_.empty() && rest_.front() == '"') {
      read.text = string();
    } else {
      const std::size_t end = std::min(rest_.find_first_of(" \n\r\t,]}"), rest_.size());
      read.text = rest_.substr(0, end);
      rest_.remove_prefix(end);
      char* stop = nullptr;
      read.number = std::strtod(read.text.c_str(), &stop);
      const bool digits = !read.text.empty() && (std::isdigit(static_cast<unsigned char>(read.text.back())) != 0) &&
                          *stop == '\0' && read.text.find_first_not_of("0123456789+-.eE") == std::string::npos;
      if (!digits && read.text != "true" && read.text != "false" && read.text != "null") {
        throw std::runtime_error("JSON: no value: " + read.text);
      }
    }
    return read;
  }

  std::string_view rest_;
};

}  // namespace gradweave::tests
