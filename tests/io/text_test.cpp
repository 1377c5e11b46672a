#include "io/text.h"

#include <gtest/gtest.h>

using namespace dodona::io;

constexpr std::size_t npos = std::string_view::npos;

TEST(Utf8, WellFormedTextOfEveryLengthIsAccepted) {
  EXPECT_EQ(first_invalid_utf8(""), npos);
  EXPECT_EQ(first_invalid_utf8("plain"), npos);
  EXPECT_EQ(first_invalid_utf8("\xC2\x80 \xDF\xBF"), npos);
  EXPECT_EQ(first_invalid_utf8("\xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF"), npos);
  EXPECT_EQ(first_invalid_utf8("\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"), npos);
}

TEST(Utf8, IllFormedTextIsFoundAtItsFirstByte) {
  for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x9F\xBF", "\xE1\x80", "\xED\xA0\x80",
                          "\xEF\xBF\x41", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF1\x80\x80", "\xFE", "\xFF"})
    EXPECT_EQ(first_invalid_utf8(std::string("ab") + bad), 2u) << testing::PrintToString(bad);
}

TEST(Quote, OrdinaryTextIsLeftAlone) {
  EXPECT_EQ(quote("model.layers.0 é"), "'model.layers.0 é'");
}

TEST(Quote, ControlCharactersAndIllFormedBytesAreEscaped) {
  EXPECT_EQ(quote("a\x1b[2J\n"), "'a\\x1b[2J\\x0a'");
  EXPECT_EQ(quote(std::string_view("a\0b", 3)), "'a\\x00b'");
  EXPECT_EQ(quote("\xff\x7f"), "'\\xff\\x7f'");
  EXPECT_EQ(quote("\xC2\x9B"), "'\\xc2\\x9b'");
}

TEST(Quote, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(quote("abcdef", 3), "'abc'... (6 bytes)");
  EXPECT_EQ(quote("abé", 3), "'ab'... (4 bytes)");
}

TEST(LineAndColumn, CountFromOne) {
  EXPECT_EQ(line_and_column("ab\ncd", 0), "line 1, column 1");
  EXPECT_EQ(line_and_column("ab\ncd", 1), "line 1, column 2");
  EXPECT_EQ(line_and_column("ab\ncd", 3), "line 2, column 1");
  EXPECT_EQ(line_and_column("ab\ncd", 99), "line 2, column 3");
}
