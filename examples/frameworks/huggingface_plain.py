"""Fine-tune a small BERT with Hugging Face's Trainer, without privacy."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
words = torch.randint(5, 100, (600, 12))
labels = ((words < 50).sum(1) > 6).long()
reviews = [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]
train, test = reviews[:500], reviews[500:]

config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
model = BertForSequenceClassification(config)
arguments = TrainingArguments("bert", num_train_epochs=4, per_device_train_batch_size=50, learning_rate=2e-3)
trainer = Trainer(model, arguments, train_dataset=train)
trainer.train()

print(f"after {trainer.state.global_step} steps: {trainer.evaluate(test)['eval_loss']:.2f}")
