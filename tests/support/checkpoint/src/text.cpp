#include "text.h"

namespace dsf::made_checkpoint {

std::string_view training_text() {
  return R"text(The harbour of Lindow is small. Three boats leave it before the sun is up, and two of them come back before noon. The third, the Heron,
stays out until the evening, because her captain likes the quiet water behind the island. She says that the fish there are not bigger, but that
they are better company. Every child in the town knows the name of the captain, and every dog knows the sound of her boots.

When the weather is bad, the boats stay in the harbour and the people meet in the room above the store. They mend nets, they count what they
have sold, and they tell the same four stories. The first story is about the winter in which the sea was frozen. The second story is about
the lamp that nobody lit. The third story changes every time. The fourth story is true.

Question: What is the name of the boat that comes back in the evening?
Answer: The boat that comes back in the evening is the Heron.

Question: How many boats leave the harbour before the sun is up?
Answer: Three boats leave the harbour before the sun is up.

You are a helpful assistant. Please answer the question in one sentence. If you do not know the answer, say that you do not know it.
The user asks for the weather in a city. The assistant calls the tool, reads the result and then writes the answer for the user.
I think the answer is 42. Let me think about it again: 12 + 30 = 42, and 6 * 7 = 42, so the answer is 42. That is what I want to say.

## Tools
You have access to a set of tools. Each tool has a name, a description and parameters. To call a tool, write the name of the tool and the value
of every parameter. After the call you get the result of the tool.

{"name": "get_weather", "description": "Get the weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
{"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}
</ calls>
</ invoke>
</ parameter>
< calls>
< invoke name="get_weather">
< parameter name="city" string="true">Lindow</ parameter>
</ invoke>
</ calls>

def count_boats(harbour):
    total = 0
    for boat in harbour:
        if boat.is_out and not boat.is_late:
            total += 1
    return total

int main(void) {
  for (int i = 0; i < 10; ++i) {
    print("line %d\n", i);
  }
  return 0;
}

1. The first thing to do is to read the whole text.
2. The second thing to do is to count the words.
3. The third thing is to write down what you have found, in your own words.

the The THE the the then there these they this that those Thus
and And AND a A an An in In IN on On of Of OF to To TO is Is it It
one two three four five six seven eight nine ten eleven twelve hundred thousand
red green blue yellow black white north south east west spring summer autumn winter
Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August

港口很小。天亮以前有三条船出海，中午以前有两条船回来。第三条船晚上回来。
问：哪条船晚上回来？答：第三条船晚上回来。
你好，我是助手。今天天气很好。请用一句话回答问题。如果你不知道答案，就说你不知道。
港の水は静かです。船は朝に出て、夜に帰ります。こんにちは。ありがとう。
Der Hafen ist klein, über dem Wasser hängt Nebel. Où est le café? À côté du théâtre. El niño pequeño está aquí.
Привет, как дела? Всё хорошо, спасибо.
0 1 2 3 4 5 6 7 8 9 10 11 12 20 21 30 40 42 50 60 70 80 90 99 100 128 256 1000 1024 2024 2025 2026
)text";
}

}  // namespace dsf::made_checkpoint
