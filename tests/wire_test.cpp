#include <gradweave/wire.hpp>

#include <string>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("byte_writer and byte_reader: what goes in comes out") {
  byte_writer out;
  out.number(std::uint8_t{200});
  out.number(std::uint64_t{0x0123456789abcdef});
  out.text("hello", 10);
  out.text("too long", 3);
  byte_reader in(out.bytes());
  CHECK(in.number<std::uint8_t>() == 200);
  CHECK(in.number<std::uint64_t>() == 0x0123456789abcdef);
  CHECK(in.text(10) == "hello");
  CHECK_FALSE(in.complete());
  CHECK(in.text(10) == "too");
  CHECK(in.complete());
}

TEST_CASE("byte_reader: every cut, and every length that claims too much, makes it fail and stay failed") {
  byte_writer out;
  out.number(std::uint16_t{7});
  out.text("abc", 10);
  for (std::size_t length = 0; length < out.bytes().size(); ++length) {
    byte_reader in(out.bytes().first(length));
    in.number<std::uint16_t>();
    CHECK(in.text(10).empty());
    CHECK(in.failed());
    CHECK(in.number<std::uint8_t>() == 0);
    CHECK_FALSE(in.complete());
  }
  byte_writer liar;
  liar.number(std::uint32_t{0xffffffff});
  byte_reader in(liar.bytes());
  CHECK(in.text(0xffffffff).empty());
  CHECK(in.failed());
  byte_reader bounded(out.bytes().subspan(2));
  CHECK(bounded.text(2).empty());
  CHECK(bounded.failed());
}
