"""Fine-tune a small BERT with Hugging Face's Trainer, with privacy."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import discreet as dp
from discreet.learning.integrations.huggingface import private_trainer

torch.manual_seed(0)
words = torch.randint(5, 100, (600, 12))
labels = ((words < 50).sum(1) > 6).long()
reviews = [{"input_ids": row, "labels": label} for row, label in zip(words, labels, strict=True)]
train, test = reviews[:500], reviews[500:]

config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
model = BertForSequenceClassification(config)
arguments = TrainingArguments("bert", num_train_epochs=4, per_device_train_batch_size=50, learning_rate=2e-3)
account = dp.Ledger("reviews.ledger").account("reviews", budget=dp.ApproxDP(8.0, 1e-5))
plan = dp.learning.Plan.for_epsilon(4.0, delta=1e-5, examples=500, batch_size=50, epochs=4, clip_norm=1.0)
trainer = private_trainer(Trainer)(model, arguments, train_dataset=train, plan=plan, account=account)
trainer.train()

print(f"after {trainer.state.global_step} steps: {trainer.evaluate(test)['eval_loss']:.2f}")
